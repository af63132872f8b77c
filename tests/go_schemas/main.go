// Prints, as JSON, the definitions and payloads of the schemas of Pulsar's Go client.
//
// With the URL of a broker, and a suffix of topics, it receives a value from each of "avro-SUFFIX", "json-SUFFIX" and so
// on, and sends it again.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const definition = `{"type": "record", "name": "Reading", "namespace": "org.example", "fields": [
  {"name": "small", "type": "int"}, {"name": "large", "type": "long"}, {"name": "real", "type": "double"},
  {"name": "flag", "type": "boolean"}, {"name": "text", "type": "string"}, {"name": "raw", "type": "bytes"},
  {"name": "maybe", "type": ["null", "string"], "default": null},
  {"name": "words", "type": {"type": "array", "items": "string"}},
  {"name": "numbers", "type": {"type": "map", "values": "long"}},
  {"name": "address", "type": {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}}]}`

type address struct {
	City string `json:"city" avro:"city"`
}

type reading struct {
	Small   int32            `json:"small" avro:"small"`
	Large   int64            `json:"large" avro:"large"`
	Real    float64          `json:"real" avro:"real"`
	Flag    bool             `json:"flag" avro:"flag"`
	Text    string           `json:"text" avro:"text"`
	Raw     []byte           `json:"raw" avro:"raw"`
	Maybe   *string          `json:"maybe" avro:"maybe"`
	Words   []string         `json:"words" avro:"words"`
	Numbers map[string]int64 `json:"numbers" avro:"numbers"`
	Address address          `json:"address" avro:"address"`
}

type entry struct {
	Name       string   `json:"name"`
	Type       int      `json:"type"`
	Definition string   `json:"definition"`
	Payloads   []string `json:"payloads"`
}

func describe(schema pulsar.Schema, values ...interface{}) entry {
	info := schema.GetSchemaInfo()
	described := entry{Name: info.Name, Type: int(info.Type), Definition: hex.EncodeToString([]byte(info.Schema))}
	for _, value := range values {
		payload, err := schema.Encode(value)
		if err != nil {
			panic(err)
		}
		described.Payloads = append(described.Payloads, hex.EncodeToString(payload))
	}
	return described
}

func exchange(url string, suffix string) {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	for name, one := range map[string]struct {
		schema pulsar.Schema
		target interface{}
	}{
		"avro":            {pulsar.NewAvroSchema(definition, nil), &reading{}},
		"json":            {pulsar.NewJSONSchema(definition, nil), &reading{}},
		"double":          {pulsar.NewDoubleSchema(nil), new(float64)},
		"protobuf_native": {pulsar.NewProtoNativeSchemaWithMessage(&timestamppb.Timestamp{}, nil), &timestamppb.Timestamp{}},
	} {
		topic := "persistent://public/default/" + name + "-" + suffix
		consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "go", Schema: one.schema,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
		if err != nil {
			panic(name + ": " + err.Error())
		}
		waiting, cancel := context.WithTimeout(context.Background(), 40*time.Second)
		message, err := consumer.Receive(waiting)
		cancel()
		if err != nil {
			panic(name + ": " + err.Error())
		}
		if err := message.GetSchemaValue(one.target); err != nil {
			panic(name + ": " + err.Error())
		}
		producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: one.schema})
		if err != nil {
			panic(name + ": " + err.Error())
		}
		value := one.target
		if number, is := value.(*float64); is {
			value = *number
		}
		if _, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Value: value}); err != nil {
			panic(name + ": " + err.Error())
		}
	}
}

func main() {
	if len(os.Args) == 3 {
		exchange(os.Args[1], os.Args[2])
		return
	}
	text := "yes"
	full := reading{Small: -7, Large: 1 << 60, Real: 2, Flag: true, Text: "naïve ☕", Raw: []byte("bytes"), Maybe: &text,
		Words: []string{"a", "b"}, Numbers: map[string]int64{"one": 1}, Address: address{City: "Ulm"}}
	empty := reading{}
	vectors := map[string]entry{
		"avro":   describe(pulsar.NewAvroSchema(definition, nil), full, empty),
		"json":   describe(pulsar.NewJSONSchema(definition, nil), full, empty),
		"string": describe(pulsar.NewStringSchema(nil), "naïve ☕"),
		"int8":   describe(pulsar.NewInt8Schema(nil), int8(-128), int8(127)),
		"int16":  describe(pulsar.NewInt16Schema(nil), int16(-2), int16(258)),
		"int32":  describe(pulsar.NewInt32Schema(nil), int32(-2), int32(16909060)),
		"int64":  describe(pulsar.NewInt64Schema(nil), int64(-2), int64(72623859790382856)),
		"float":  describe(pulsar.NewFloatSchema(nil), float32(1.5), float32(math.Inf(1))),
		"double": describe(pulsar.NewDoubleSchema(nil), 0.1, math.Inf(-1)),
		"protobuf_native": describe(pulsar.NewProtoNativeSchemaWithMessage(&timestamppb.Timestamp{}, nil),
			&timestamppb.Timestamp{Seconds: 1700000000, Nanos: 5}),
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(vectors); err != nil {
		panic(err)
	}
}
