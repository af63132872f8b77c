import com.google.protobuf.Timestamp;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDateTime;
import java.util.List;
import java.util.Objects;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/** Producers and consumers with schemas: what they register, and what they read. */
final class Schemas {
    public static final class Point {
        public int x;
        public String name;

        static Point of(int x, String name) {
            Point point = new Point();
            point.x = x;
            point.name = name;
            return point;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Point point && point.x == x && Objects.equals(point.name, name);
        }

        @Override
        public int hashCode() {
            return x;
        }
    }

    private static final String RECORD = "{\"type\": \"record\", \"name\": \"Point\", \"namespace\": \"Schemas\", "
            + "\"fields\": [";
    private static final String X = "{\"name\": \"x\", \"type\": \"int\"}";
    private static final String NAME = ", {\"name\": \"name\", \"type\": [\"null\", \"string\"], \"default\": null}";

    /** The version of `Point` before it had a name, or the one that it has. */
    private static Schema<Point> avro(boolean named) {
        String definition = RECORD + X + (named ? NAME : "") + "]}";
        return Schema.AVRO(SchemaDefinition.<Point>builder().withJsonDef(definition).build());
    }

    private static <T> Consumer<T> consumer(Scene scene, String topic, String subscription, Schema<T> schema) throws Exception {
        return scene.client.newConsumer(schema).topic(topic).subscriptionName(subscription)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
    }

    private static <T> Message<T> value(Scene scene, String topic, Schema<T> schema, T value) throws Exception {
        try (Producer<T> producer = scene.client.newProducer(schema).topic(topic).create();
                Consumer<T> consumer = consumer(scene, topic, "s", schema)) {
            producer.send(value);
            Message<T> message = Scene.receive(consumer);
            consumer.acknowledge(message);
            Scene.equal(value, message.getValue());
            return message;
        }
    }

    private static long version(Message<?> message) {
        return ByteBuffer.wrap(message.getSchemaVersion()).getLong();
    }

    @Check
    static void ofRecords(Scene scene) throws Exception {
        for (Schema<Point> schema : List.of(Schema.JSON(Point.class), Schema.AVRO(Point.class), avro(true))) {
            String topic = scene.topic();
            Scene.equal(0L, version(value(scene, topic, schema, Point.of(7, "\u00fc"))));
            Scene.equal(0L, version(value(scene, topic, schema, Point.of(8, null))));
        }
    }

    @Check
    static void ofProtobuf(Scene scene) throws Exception {
        value(scene, scene.topic(), Schema.PROTOBUF(Timestamp.class), Timestamp.newBuilder().setSeconds(7).build());
        value(scene, scene.topic(), Schema.PROTOBUF_NATIVE(Timestamp.class), Timestamp.newBuilder().setNanos(7).build());
    }

    @Check
    static void ofKeysAndValues(Scene scene) throws Exception {
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            Schema<KeyValue<Point, Integer>> schema = Schema.KeyValue(Schema.AVRO(Point.class), Schema.INT32, encoding);
            KeyValue<Point, Integer> pair = new KeyValue<>(Point.of(1, "key"), 7);
            String topic = scene.topic();
            Message<KeyValue<Point, Integer>> message = value(scene, topic, schema, pair);
            Scene.equal(encoding == KeyValueEncodingType.SEPARATED, message.hasKey());
            Consumer<GenericRecord> any = consumer(scene, topic, "any", Schema.AUTO_CONSUME());
            KeyValue<?, ?> read = (KeyValue<?, ?>) Scene.receive(any).getValue().getNativeObject();
            Scene.equal(1, ((GenericRecord) read.getKey()).getField("x"));
            Scene.equal(7, read.getValue());
        }
    }

    @Check
    static void ofVersionsThatFollow(Scene scene) throws Exception {
        String topic = scene.topic();
        scene.client.newProducer(avro(false)).topic(topic).create().send(Point.of(1, null));
        scene.client.newProducer(avro(true)).topic(topic).create().send(Point.of(2, "b"));
        Consumer<Point> newer = consumer(scene, topic, "newer", avro(true));
        Consumer<GenericRecord> any = consumer(scene, topic, "any", Schema.AUTO_CONSUME());
        for (int number = 0; number < 2; number++) {
            Message<Point> message = Scene.receive(newer);
            Scene.equal((long) number, version(message));
            Scene.equal(Point.of(number + 1, number == 0 ? null : "b"), message.getValue());
            GenericRecord record = Scene.receive(any).getValue();
            Scene.equal(number + 1, record.getField("x"));
            Scene.equal(number + 1, record.getFields().size());
        }
        Consumer<Point> older = consumer(scene, topic, "older", avro(false));
        Scene.equal(List.of(1, 2), Scene.receive(older, 2).stream().map(message -> message.getValue().x).toList());
    }

    @Check
    static void ofTheTopicForBytes(Scene scene) throws Exception {
        String topic = scene.topic();
        Consumer<Point> consumer = consumer(scene, topic, "s", avro(true));
        Producer<byte[]> producer = scene.client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(topic).create();
        producer.send(avro(true).encode(Point.of(7, "b")));
        Message<Point> message = Scene.receive(consumer);
        Scene.equal(Point.of(7, "b"), message.getValue());
        Scene.equal(0L, version(message));
    }

    @Check
    static void ofSeveralKindsByOneProducer(Scene scene) throws Exception {
        String topic = scene.topic();
        Consumer<GenericRecord> consumer = consumer(scene, topic, "s", Schema.AUTO_CONSUME());
        Producer<byte[]> producer = scene.client.newProducer().topic(topic).create();
        producer.send(Scene.bytes("any"));
        producer.newMessage(avro(false)).value(Point.of(1, null)).send();
        producer.newMessage(avro(true)).value(Point.of(2, "b")).send();
        Scene.equal("any", Scene.text(Scene.receive(consumer)));
        Scene.equal(1, Scene.receive(consumer).getValue().getField("x"));
        Scene.equal("b", Scene.receive(consumer).getValue().getField("name"));
        Scene.refused(PulsarClientException.class, () -> producer.newMessage(Schema.INT32).value(7).send());
    }

    /** A client of Magnetar's own receives the value, and sends it again. */
    @Check
    static void withMagnetarsClient(Scene scene) throws Exception {
        exchange(scene, "avro", Schema.AVRO(Point.class), Point.of(7, "\u00fc"), "7 \u00fc");
        exchange(scene, "json", Schema.JSON(Point.class), Point.of(7, "\u00fc"), "7 \u00fc");
        exchange(scene, "protobuf", Schema.PROTOBUF(Timestamp.class), Timestamp.newBuilder().setSeconds(7).build(), "7");
        exchange(scene, "protobuf native", Schema.PROTOBUF_NATIVE(Timestamp.class),
                Timestamp.newBuilder().setSeconds(7).build(), "7");
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            exchange(scene, "pairs " + encoding, Schema.KeyValue(Schema.STRING, Schema.AVRO(Point.class), encoding),
                    new KeyValue<>("key", Point.of(7, null)), "key 7 None");
        }
        exchange(scene, "string", Schema.STRING, "\u00fc", "\u00fc");
        exchange(scene, "int32", Schema.INT32, -7, "-7");
        exchange(scene, "double", Schema.DOUBLE, 0.1, "0.1");
        exchange(scene, "instant", Schema.INSTANT, Instant.ofEpochSecond(7, 1000), "1970-01-01 00:00:07.000001+00:00");
        exchange(scene, "local date time", Schema.LOCAL_DATE_TIME, LocalDateTime.of(2026, 11, 26, 18, 30),
                "2026-11-26 18:30:00");
    }

    private static <T> void exchange(Scene scene, String kind, Schema<T> schema, T value, String shown) throws Exception {
        String topic = scene.topic();
        scene.client.newProducer(schema).topic(topic).create().send(value);
        Scene.equal(shown, scene.ask("magnetar exchange", topic, kind));
        List<Message<T>> messages = Scene.receive(consumer(scene, topic, "s", schema), 2);
        Scene.equal(List.of(value, value), messages.stream().map(Message::getValue).toList());
    }

    @Check
    static void notOfAnotherKind(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<Point> producer = scene.client.newProducer(avro(false)).topic(topic).create();
        for (Schema<?> schema : List.of(Schema.JSON(Point.class), Schema.STRING, Schema.PROTOBUF_NATIVE(Timestamp.class))) {
            Scene.refused(PulsarClientException.IncompatibleSchemaException.class,
                    () -> scene.client.newProducer(schema).topic(topic).create());
            Scene.refused(PulsarClientException.IncompatibleSchemaException.class, () -> consumer(scene, topic, "s", schema));
        }
        producer.send(Point.of(1, null));
        Scene.equal(1, Scene.receive(consumer(scene, topic, "s", avro(false))).getValue().x);
    }
}
