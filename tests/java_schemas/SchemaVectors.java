import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.google.protobuf.GeneratedMessageV3;
import com.google.protobuf.ListValue;
import com.google.protobuf.NullValue;
import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.Time;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.client.impl.schema.ProtobufNativeSchema;
import org.apache.pulsar.client.impl.schema.ProtobufSchema;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;

/** Prints, as JSON, the definitions and payloads of the schemas of Pulsar's Java client. */
public final class SchemaVectors {
    public enum Color { RED, GREEN }

    public static final class Address {
        public String city;
        public int number;
    }

    public static final class Reading {
        public int small;
        public Integer optional;
        public long large;
        public float narrow;
        public double real;
        public boolean flag;
        public String text;
        public byte[] raw;
        public Color color;
        public List<String> words;
        public Map<String, Long> numbers;
        public Address address;
        public List<Address> addresses;
    }

    private static final Map<String, Object> VECTORS = new LinkedHashMap<>();

    public static void main(String[] arguments) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        primitives();
        records();
        genericAvro();
        keyValues();
        protobuf();
        System.out.println(
            new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT).writeValueAsString(VECTORS));
    }

    private static void primitives() {
        record("boolean", Schema.BOOL, true, false);
        record("int8", Schema.INT8, (byte) 0, (byte) 127, (byte) -128);
        record("int16", Schema.INT16, (short) 258, Short.MAX_VALUE, Short.MIN_VALUE);
        record("int32", Schema.INT32, 16909060, Integer.MAX_VALUE, Integer.MIN_VALUE);
        record("int64", Schema.INT64, 72623859790382856L, Long.MAX_VALUE, Long.MIN_VALUE);
        record("float", Schema.FLOAT, 1.5f, -0.0f, Float.MAX_VALUE, Float.POSITIVE_INFINITY);
        record("double", Schema.DOUBLE, 0.1, -0.0, Double.MAX_VALUE, Double.NEGATIVE_INFINITY);
        record("string", Schema.STRING, "", "naïve ☕ 𝄞");
        record("date", Schema.DATE, new Date(0), new Date(1700000000123L), new Date(-1));
        record("time", Schema.TIME, new Time(0), new Time(45296789));
        record("timestamp", Schema.TIMESTAMP, new Timestamp(1700000000123L), new Timestamp(-1));
        record("instant", Schema.INSTANT, Instant.EPOCH, Instant.parse("2026-11-26T18:30:00.123456Z"),
            Instant.parse("1969-12-31T23:59:59.999999Z"), Instant.parse("2026-11-26T18:30:00.123456789Z"));
        record("local_date", Schema.LOCAL_DATE, LocalDate.EPOCH, LocalDate.of(2026, 11, 26), LocalDate.of(1, 1, 1));
        record("local_time", Schema.LOCAL_TIME, LocalTime.MIDNIGHT, LocalTime.parse("12:34:56.789012"),
            LocalTime.parse("12:34:56.789012345"));
        record("local_date_time", Schema.LOCAL_DATE_TIME, LocalDateTime.parse("2026-11-26T18:30:00.123456"),
            LocalDateTime.parse("1969-12-31T23:59:59.999999"), LocalDateTime.parse("2026-11-26T18:30:00.123456789"));
    }

    private static void records() {
        Reading full = new Reading();
        full.small = -7;
        full.optional = 8;
        full.large = 1L << 60;
        full.narrow = 0.5f;
        full.real = 0.1;
        full.flag = true;
        full.text = "naïve ☕";
        full.raw = "bytes".getBytes(StandardCharsets.UTF_8);
        full.color = Color.GREEN;
        full.words = List.of("a", "b");
        full.numbers = Map.of("one", 1L);
        full.address = new Address();
        full.address.city = "Ulm";
        full.address.number = 89073;
        full.addresses = List.of(full.address);
        SchemaDefinition<Reading> strict =
            SchemaDefinition.<Reading>builder().withPojo(Reading.class).withAlwaysAllowNull(false).build();
        record("avro", Schema.AVRO(Reading.class), full, new Reading());
        record("avro_not_null", Schema.AVRO(strict), full);
        record("json", Schema.JSON(Reading.class), full, new Reading());
    }

    /** Types that have no class in Java, or none that Pulsar's schemas map: written by Avro's own library. */
    private static void genericAvro() throws Exception {
        String definition = """
            {"type": "record", "name": "Types", "namespace": "org.example", "fields": [
              {"name": "fixed", "type": {"type": "fixed", "name": "Four", "size": 4}},
              {"name": "choice", "type": ["null", "int", "string", "Four", {"type": "record", "name": "Inner", "fields": [
                {"name": "next", "type": ["null", "Inner"], "default": null}]}]},
              {"name": "many", "type": {"type": "array", "items": ["null", "boolean", "double"]}},
              {"name": "date", "type": {"type": "int", "logicalType": "date"}},
              {"name": "millis", "type": {"type": "int", "logicalType": "time-millis"}},
              {"name": "micros", "type": {"type": "long", "logicalType": "time-micros"}},
              {"name": "at_millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
              {"name": "at_micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
              {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
              {"name": "id", "type": {"type": "string", "logicalType": "uuid"}}]}
            """;
        org.apache.avro.Schema schema = new org.apache.avro.Schema.Parser().parse(definition);
        GenericData.Record inner = new GenericData.Record(schema.getField("choice").schema().getTypes().get(4));
        GenericData.Record nested = new GenericData.Record(inner.getSchema());
        inner.put("next", nested);
        List<Map<String, String>> payloads = new ArrayList<>();
        Object four = new GenericData.Fixed(schema.getField("fixed").schema(), new byte[] {1, 2, 3, 4});
        for (Object choice : new Object[] {null, 5, "text", four, inner}) {
            GenericData.Record written = new GenericData.Record(schema);
            written.put("fixed", four);
            written.put("choice", choice);
            List<Object> many = new ArrayList<>(List.of(true, 1.5));
            many.add(null);
            written.put("many", many);
            written.put("date", 20783);
            written.put("millis", 45296789);
            written.put("micros", 45296789012L);
            written.put("at_millis", 1700000000123L);
            written.put("at_micros", 1700000000123456L);
            written.put("amount", ByteBuffer.wrap(new java.math.BigInteger("-12345").toByteArray()));
            written.put("id", "3f333df6-90a4-4fda-8dd3-9485d27cee36");
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(output, null);
            new GenericDatumWriter<>(schema).write(written, encoder);
            encoder.flush();
            payloads.add(Map.of("value", String.valueOf(choice), "payload", hex(output.toByteArray())));
        }
        Map<String, Object> entry = new LinkedHashMap<>();
        entry.put("definition", definition);
        entry.put("payloads", payloads);
        VECTORS.put("avro_types", entry);
    }

    private static void keyValues() {
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            Schema<KeyValue<String, Integer>> schema = Schema.KeyValue(Schema.STRING, Schema.INT32, encoding);
            Map<String, Object> entry = describe(schema.getSchemaInfo());
            List<Map<String, String>> payloads = new ArrayList<>();
            for (KeyValue<String, Integer> pair : List.of(
                    new KeyValue<>("key", 5), new KeyValue<String, Integer>(null, 5),
                    new KeyValue<String, Integer>("key", null), new KeyValue<String, Integer>(null, null))) {
                Map<String, String> payload = new LinkedHashMap<>();
                payload.put("key", pair.getKey());
                payload.put("value", pair.getValue() == null ? null : pair.getValue().toString());
                try {
                    byte[] encoded = schema.encode(pair);
                    payload.put("payload", encoded == null ? null : hex(encoded));
                } catch (RuntimeException error) {
                    payload.put("error", error.toString());
                }
                payloads.add(payload);
            }
            entry.put("payloads", payloads);
            VECTORS.put("key_value_" + encoding.name().toLowerCase(), entry);
        }
        VECTORS.put("key_value_records",
            describe(Schema.KeyValue(Schema.AVRO(Address.class), Schema.JSON(Address.class)).getSchemaInfo()));
    }

    private static void protobuf() {
        Struct struct = Struct.newBuilder()
            .putFields("number", Value.newBuilder().setNumberValue(1.5).build())
            .putFields("list", Value.newBuilder().setListValue(
                ListValue.newBuilder().addValues(Value.newBuilder().setNullValue(NullValue.NULL_VALUE))).build())
            .build();
        com.google.protobuf.Timestamp timestamp =
            com.google.protobuf.Timestamp.newBuilder().setSeconds(1700000000).setNanos(5).build();
        record("protobuf_native", ProtobufNativeSchema.of(Struct.class), struct);
        record("protobuf_native_timestamp", ProtobufNativeSchema.of(com.google.protobuf.Timestamp.class), timestamp);
        record("protobuf", ProtobufSchema.of(com.google.protobuf.Timestamp.class), timestamp);
        List<Class<? extends GeneratedMessageV3>> classes = List.of(
            com.google.protobuf.Any.class, com.google.protobuf.BoolValue.class, com.google.protobuf.BytesValue.class,
            com.google.protobuf.DoubleValue.class, com.google.protobuf.Duration.class, com.google.protobuf.Empty.class,
            com.google.protobuf.Field.class, com.google.protobuf.FieldMask.class, com.google.protobuf.FloatValue.class,
            com.google.protobuf.Int32Value.class, com.google.protobuf.Int64Value.class, Struct.class,
            com.google.protobuf.StringValue.class,
            com.google.protobuf.UInt32Value.class, com.google.protobuf.UInt64Value.class,
            com.google.protobuf.DescriptorProtos.UninterpretedOption.class);
        Map<String, Object> definitions = new LinkedHashMap<>();
        for (Class<? extends GeneratedMessageV3> type : classes) {
            try {
                definitions.put(type.getSimpleName(), describe(ProtobufSchema.of(type).getSchemaInfo()));
            } catch (RuntimeException | StackOverflowError error) {
                definitions.put(type.getSimpleName(), Map.of("error", error.toString()));
            }
        }
        VECTORS.put("protobuf_definitions", definitions);
    }

    @SafeVarargs
    private static <T> void record(String name, Schema<? super T> schema, T... values) {
        Map<String, Object> entry = describe(schema.getSchemaInfo());
        List<Map<String, String>> payloads = new ArrayList<>();
        for (T value : values) {
            Map<String, String> payload = new LinkedHashMap<>();
            if (!(value instanceof Reading)) {
                boolean isMoment = value instanceof Date;
                payload.put("value", isMoment ? Long.toString(((Date) value).getTime()) : value.toString());
            }
            payload.put("payload", hex(schema.encode(value)));
            payloads.add(payload);
        }
        entry.put("payloads", payloads);
        VECTORS.put(name, entry);
    }

    private static Map<String, Object> describe(SchemaInfo info) {
        Map<String, Object> entry = new LinkedHashMap<>();
        entry.put("name", info.getName());
        entry.put("type", info.getType().name());
        entry.put("definition", hex(info.getSchema()));
        entry.put("properties", info.getProperties());
        return entry;
    }

    private static String hex(byte[] bytes) {
        return java.util.HexFormat.of().formatHex(bytes);
    }
}
