// Pulsar's Go client with a service URL of HTTP, and its admin client: one line of JSON for each check.
//
//	go run . http://127.0.0.1:8080 TENANT pulsar://127.0.0.1:6650
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

func check(name string, value any, err error) {
	line := map[string]any{"check": name, "value": value}
	if err != nil {
		line["error"] = err.Error()
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	url, tenant := os.Args[1], os.Args[2]
	admin := must(pulsaradmin.NewClient(&pulsaradmin.Config{WebServiceURL: url}))
	namespace := tenant + "/n"
	plain := must(utils.GetTopicName("persistent://" + namespace + "/plain"))
	parts := must(utils.GetTopicName("persistent://" + namespace + "/parts"))

	check("tenants.create", nil, admin.Tenants().Create(utils.TenantData{Name: tenant, AllowedClusters: []string{"standalone"}}))
	info, err := admin.Tenants().Get(tenant)
	check("tenants.get", info.AllowedClusters, err)
	check("namespaces.create", nil, admin.Namespaces().CreateNamespace(namespace))
	namespaces, err := admin.Namespaces().GetNamespaces(tenant)
	check("namespaces.list", namespaces, err)
	check("namespaces.retention.set", nil, admin.Namespaces().SetRetention(namespace, utils.NewRetentionPolicies(10, 5)))
	retention, err := admin.Namespaces().GetRetention(namespace)
	check("namespaces.retention.get", retention, err)

	check("topics.create", nil, admin.Topics().Create(*plain, 0))
	check("topics.create.partitioned", nil, admin.Topics().Create(*parts, 2))
	metadata, err := admin.Topics().GetMetadata(*parts)
	check("topics.partitions", metadata.Partitions, err)
	check("topics.update", nil, admin.Topics().Update(*parts, 3))
	definition := `{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`
	payload := utils.PostSchemaPayload{SchemaType: "AVRO", Schema: definition, Properties: map[string]string{"k": "v"}}
	name := plain.String()
	check("schemas.create", nil, admin.Schemas().CreateSchemaByPayload(name, payload))
	schema, err := admin.Schemas().GetSchemaInfoWithVersion(name)
	check("schemas.get", []any{schema.Version, schema.SchemaInfo.Type, string(schema.SchemaInfo.Schema), schema.SchemaInfo.Properties}, err)
	schemaOfVersion, err := admin.Schemas().GetSchemaInfoByVersion(name, 0)
	check("schemas.get.version", string(schemaOfVersion.Schema), err)
	_, err = admin.Schemas().GetSchemaInfoByVersion(name, 1)
	check("schemas.get.missing", err != nil, nil)
	check("schemas.delete", nil, admin.Schemas().DeleteSchema(name))
	check("subscriptions.create", nil, admin.Subscriptions().Create(*plain, "s", utils.Earliest))
	subscriptions, err := admin.Subscriptions().List(*plain)
	check("subscriptions.list", subscriptions, err)

	messages(url, plain.String(), parts.String())
	patterns(os.Args[3], os.Args[2])
	schemas(url, admin, namespace)

	stats, err := admin.Topics().GetStats(*plain)
	check("topics.stats", stats.Subscriptions["s"].MsgBacklog, err)
	peeked, err := admin.Subscriptions().PeekMessages(*plain, "s", 1)
	check("subscriptions.peek", len(peeked), err)
	check("subscriptions.skip", nil, admin.Subscriptions().SkipMessages(*plain, "s", 1))
	check("subscriptions.clear", nil, admin.Subscriptions().ClearBacklog(*plain, "s"))
	stats, err = admin.Topics().GetStats(*plain)
	check("topics.stats.cleared", stats.Subscriptions["s"].MsgBacklog, err)
	check("subscriptions.delete", nil, admin.Subscriptions().Delete(*plain, "s"))
	lookup, err := admin.Topics().Lookup(*plain)
	check("topics.lookup", lookup.BrokerURL != "", err)
	check("topics.delete", nil, admin.Topics().Delete(*plain, true, true))
	check("topics.delete.partitioned", nil, admin.Topics().Delete(*parts, true, false))
	check("namespaces.delete", nil, admin.Namespaces().DeleteNamespace(namespace))
	check("tenants.delete", nil, admin.Tenants().Delete(tenant))
	_, err = admin.Tenants().Get(tenant)
	check("tenants.deleted", err != nil, nil)
}

// messages sends and receives with lookups over HTTP.
func messages(url string, plain string, parts string) {
	client := must(pulsar.NewClient(pulsar.ClientOptions{URL: url, OperationTimeout: 20 * time.Second}))
	defer client.Close()
	partitions, err := client.TopicPartitions(parts)
	check("client.partitions", len(partitions), err)
	for _, topic := range []string{plain, parts} {
		consumer := must(client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "go",
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest}))
		producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true}))
		for number := 0; number < 3; number++ {
			must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte{byte(number)}}))
		}
		sum := 0
		for number := 0; number < 3; number++ {
			deadline, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			message := must(consumer.Receive(deadline))
			cancel()
			sum += int(message.Payload()[0])
		}
		check("client.received."+topic[len(topic)-5:], sum, nil)
		producer.Close()
		consumer.Close()
	}
}

// patterns receives from a topic that is created after its pattern was subscribed to. The client asks for the topics.
func patterns(url string, prefix string) {
	client := must(pulsar.NewClient(pulsar.ClientOptions{URL: url, OperationTimeout: 20 * time.Second}))
	defer client.Close()
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{TopicsPattern: "persistent://public/default/" + prefix + "-.*",
		SubscriptionName: "go", AutoDiscoveryPeriod: time.Second,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest}))
	defer consumer.Close()
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: prefix + "-new", DisableBatching: true}))
	defer producer.Close()
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("first")}))
	deadline, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	check("client.received.pattern", string(must(consumer.Receive(deadline)).Payload()), nil)
}
