package main

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

type point struct {
	X    int32  `json:"x" avro:"x"`
	Name string `json:"name" avro:"name"`
}

const definition = `{"type": "record", "name": "Point", "fields": [
	{"name": "x", "type": "int"}, {"name": "name", "type": "string", "default": ""}]}`

// schemas sends a value by each kind of schema that the client has, and reads it and its version.
func schemas(url string, admin pulsaradmin.Client, namespace string) {
	client := must(pulsar.NewClient(pulsar.ClientOptions{URL: url, OperationTimeout: 20 * time.Second}))
	defer client.Close()
	avro := must(pulsar.NewAvroSchemaWithValidation(definition, nil))
	json := must(pulsar.NewJSONSchemaWithValidation(definition, nil))
	for _, one := range []struct {
		name   string
		schema pulsar.Schema
		sent   any
		read   func(pulsar.Message) (any, error)
	}{
		{"avro", avro, point{7, "ü"}, readPoint},
		{"json", json, point{7, "ü"}, readPoint},
		{"string", pulsar.NewStringSchema(nil), "ü", readString},
		{"int64", pulsar.NewInt64Schema(nil), int64(7), readInt64},
	} {
		topic := "persistent://" + namespace + "/schema-" + one.name
		consumer := must(client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "go", Schema: one.schema}))
		producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: one.schema}))
		must(producer.Send(context.Background(), &pulsar.ProducerMessage{Value: one.sent}))
		waiting, cancel := context.WithTimeout(context.Background(), 40*time.Second)
		message := must(consumer.Receive(waiting))
		cancel()
		value, err := one.read(message)
		check("schemas.value."+one.name, value, err)
		check("schemas.version."+one.name, binary.BigEndian.Uint64(message.SchemaVersion()), nil)
		producer.Close()
		consumer.Close()
	}
	_, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "persistent://" + namespace + "/schema-avro", Schema: json})
	check("schemas.refused", err != nil, nil)
	info, err := admin.Schemas().GetSchemaInfo("persistent://" + namespace + "/schema-avro")
	if err == nil {
		check("schemas.type", info.Type, nil)
	} else {
		check("schemas.type", nil, err)
	}
	for _, name := range []string{"avro", "json", "string", "int64"} {
		topic := must(utils.GetTopicName("persistent://" + namespace + "/schema-" + name))
		check("schemas.deleted."+name, nil, admin.Topics().Delete(*topic, true, true))
	}
}

func readPoint(message pulsar.Message) (any, error) {
	var value point
	err := message.GetSchemaValue(&value)
	return value, err
}

func readString(message pulsar.Message) (any, error) {
	var value *string
	err := message.GetSchemaValue(&value)
	return value, err
}

func readInt64(message pulsar.Message) (any, error) {
	var value int64
	err := message.GetSchemaValue(&value)
	return value, err
}
