import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.client.admin.Schemas;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy;
import org.apache.pulsar.common.policies.data.SchemaMetadata;
import org.apache.pulsar.common.protocol.schema.IsCompatibilityResponse;
import org.apache.pulsar.common.protocol.schema.PostSchemaPayload;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaInfoWithVersion;
import org.apache.pulsar.common.util.ObjectMapperFactory;

final class SchemaSteps {
    private static final String FIRST = "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"}]}";
    private static final String SECOND = "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"},"
            + "{\"name\":\"b\",\"type\":[\"null\",\"string\"],\"default\":null}]}";
    private static final String OTHER = "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"b\",\"type\":\"string\"}]}";

    static final class Pair {
        public String name;
        public int number;
    }

    static void run(Steps steps) throws Exception {
        Schemas all = steps.admin.schemas();
        String t = steps.topic("with-schema");
        steps.admin.topics().createNonPartitionedTopic(t);
        none(steps, all, t);
        versions(steps, all, t);
        refused(steps, all, t);
        policies(steps, all, t);
        deleted(steps, all, t);
        types(steps, all);
        partitions(steps, all);
        missing(steps, all);
        steps.run("schemas.topic.delete", () -> steps.admin.topics().delete(t));
        steps.get("schemas.of a deleted topic", () -> shown(all.getSchemaInfo(t)));
    }

    private static void none(Steps steps, Schemas all, String t) {
        steps.get("schemas.none", () -> shown(all.getSchemaInfo(t)));
        steps.get("schemas.none.version", () -> shown(all.getSchemaInfo(t, 0)));
        steps.get("schemas.none.with version", () -> shown(all.getSchemaInfoWithVersion(t)));
        steps.get("schemas.none.all", () -> listed(all, t));
        steps.get("schemas.none.metadata", () -> located(all, t));
        steps.get("schemas.none.find", () -> all.getVersionBySchema(t, payload("AVRO", FIRST)));
        steps.get("schemas.none.check", () -> checked(all.testCompatibility(t, payload("AVRO", FIRST))));
    }

    private static void versions(Steps steps, Schemas all, String t) {
        steps.run("schemas.create", () -> all.createSchema(t, new PostSchemaPayload("AVRO", FIRST, Map.of("key", "value"))));
        steps.run("schemas.create.again", () -> all.createSchema(t, payload("AVRO", FIRST)));
        steps.get("schemas.check", () -> checked(all.testCompatibility(t, payload("AVRO", SECOND))));
        steps.run("schemas.create.second", () -> all.createSchema(t, payload("AVRO", SECOND)));
        steps.get("schemas.get", () -> shown(all.getSchemaInfo(t)));
        steps.get("schemas.get.first", () -> shown(all.getSchemaInfo(t, 0)));
        steps.get("schemas.get.missing", () -> shown(all.getSchemaInfo(t, 2)));
        steps.get("schemas.get.negative", () -> shown(all.getSchemaInfo(t, -1)));
        steps.get("schemas.get.with version", () -> shown(all.getSchemaInfoWithVersion(t)));
        steps.get("schemas.all", () -> listed(all, t));
        steps.get("schemas.metadata", () -> located(all, t));
        steps.get("schemas.ledgers", () -> steps.admin.topics().getInternalStats(t).schemaLedgers.stream().map(one -> one.entries).toList());
        steps.get("schemas.find", () -> all.getVersionBySchema(t, payload("AVRO", SECOND)));
        steps.get("schemas.find.missing", () -> all.getVersionBySchema(t, payload("AVRO", OTHER)));
        steps.get("schemas.find.other type", () -> all.getVersionBySchema(t, payload("JSON", SECOND)));
    }

    private static void refused(Steps steps, Schemas all, String t) {
        steps.run("schemas.create.incompatible", () -> all.createSchema(t, payload("AVRO", OTHER)));
        steps.get("schemas.check.incompatible", () -> checked(all.testCompatibility(t, payload("AVRO", OTHER))));
        steps.run("schemas.create.other type", () -> all.createSchema(t, payload("STRING", "")));
        for (PostSchemaPayload wrong : List.of(payload("AVRO", "nothing"), payload("AVRO", ""), payload("JSON", "{}"), payload("STRING", "x"), payload("AUTO_CONSUME", ""), payload("PROTOBUF_NATIVE", "{}"), payload("KEY_VALUE", ""), payload("NOTHING", ""), payload("avro", FIRST))) {
            String name = "schemas.wrong." + wrong.getType() + " of " + wrong.getSchema().length();
            steps.run(name, () -> all.createSchema(t + "-wrong", wrong));
            steps.get(name + ".check", () -> checked(all.testCompatibility(t + "-wrong", wrong)));
            steps.get(name + ".find", () -> all.getVersionBySchema(t + "-wrong", wrong));
        }
    }

    private static void policies(Steps steps, Schemas all, String t) throws Exception {
        String n = steps.namespace("topics");
        steps.admin.namespaces().setIsAllowAutoUpdateSchema(n, false);
        steps.get("schemas.check.no update by clients", () -> checked(all.testCompatibility(t, payload("AVRO", FIRST))));
        for (SchemaCompatibilityStrategy strategy : SchemaCompatibilityStrategy.values()) {
            steps.admin.namespaces().setSchemaCompatibilityStrategy(n, strategy);
            String name = "schemas." + strategy;
            String topic = t + "-" + strategy;
            steps.run(name + ".create", () -> all.createSchema(topic, payload("AVRO", FIRST)));
            Map.of("second", SECOND, "other", OTHER).entrySet().stream().sorted(Map.Entry.<String, String>comparingByKey().reversed()).forEach(next -> {
                steps.get(name + ".check." + next.getKey(), () -> checked(all.testCompatibility(topic, payload("AVRO", next.getValue()))));
                steps.run(name + ".create." + next.getKey(), () -> all.createSchema(topic, payload("AVRO", next.getValue())));
            });
            steps.get(name + ".all", () -> listed(all, topic));
            delete(steps, topic);
        }
        steps.admin.namespaces().setSchemaCompatibilityStrategy(n, SchemaCompatibilityStrategy.UNDEFINED);
        steps.admin.namespaces().setIsAllowAutoUpdateSchema(n, true);
    }

    private static void deleted(Steps steps, Schemas all, String t) {
        steps.run("schemas.delete", () -> all.deleteSchema(t));
        steps.get("schemas.deleted", () -> shown(all.getSchemaInfo(t)));
        steps.get("schemas.deleted.first", () -> shown(all.getSchemaInfo(t, 0)));
        steps.get("schemas.deleted.all", () -> listed(all, t));
        steps.get("schemas.deleted.metadata", () -> located(all, t));
        steps.get("schemas.deleted.find", () -> all.getVersionBySchema(t, payload("AVRO", SECOND)));
        steps.run("schemas.deleted.again", () -> all.deleteSchema(t));
        steps.run("schemas.create.after deletion", () -> all.createSchema(t, payload("AVRO", OTHER)));
        steps.get("schemas.all.after deletion", () -> listed(all, t));
        steps.run("schemas.delete.force", () -> all.deleteSchema(t, true));
        steps.get("schemas.all.after force", () -> listed(all, t));
        steps.get("schemas.metadata.after force", () -> located(all, t));
        steps.run("schemas.create.after force", () -> all.createSchema(t, payload("AVRO", FIRST)));
        steps.get("schemas.get.after force", () -> shown(all.getSchemaInfo(t)));
    }

    private static void types(Steps steps, Schemas all) {
        Map<String, Schema<?>> schemas = new LinkedHashMap<>();
        for (Schema<?> one : List.of(Schema.STRING, Schema.INT8, Schema.INT16, Schema.INT32, Schema.INT64, Schema.BOOL, Schema.FLOAT, Schema.DOUBLE, Schema.DATE, Schema.TIME, Schema.TIMESTAMP, Schema.INSTANT, Schema.LOCAL_DATE, Schema.LOCAL_TIME, Schema.LOCAL_DATE_TIME, Schema.BYTES, Schema.AVRO(Pair.class), Schema.JSON(Pair.class))) {
            schemas.put(one.getSchemaInfo().getType().name(), one);
        }
        schemas.put("KEY_VALUE inline", Schema.KeyValue(Schema.STRING, Schema.AVRO(Pair.class), KeyValueEncodingType.INLINE));
        schemas.put("KEY_VALUE separated", Schema.KeyValue(Schema.JSON(Pair.class), Schema.INT32, KeyValueEncodingType.SEPARATED));
        schemas.forEach((name, schema) -> {
            String topic = steps.topic("schema-" + name.replace(" ", "-"));
            SchemaInfo info = schema.getSchemaInfo();
            steps.run("schemas.type." + name, () -> all.createSchema(topic, info));
            steps.get("schemas.type." + name + ".get", () -> shown(all.getSchemaInfo(topic)));
            steps.get("schemas.type." + name + ".find", () -> all.getVersionBySchema(topic, info));
            steps.get("schemas.type." + name + ".check", () -> checked(all.testCompatibility(topic, info)));
            delete(steps, topic);
        });
    }

    private static void partitions(Steps steps, Schemas all) throws Exception {
        String t = steps.topic("partitioned-with-schema");
        steps.admin.topics().createPartitionedTopic(t, 2);
        String one = TopicName.get(t).getPartition(1).toString();
        steps.run("schemas.partition.create", () -> all.createSchema(one, payload("AVRO", FIRST)));
        steps.get("schemas.partition.get", () -> shown(all.getSchemaInfo(t)));
        steps.run("schemas.partition.create.topic", () -> all.createSchema(t, payload("AVRO", SECOND)));
        steps.get("schemas.partition.get.partition", () -> shown(all.getSchemaInfo(one)));
        steps.run("schemas.partition.delete topic", () -> steps.admin.topics().deletePartitionedTopic(t));
        steps.get("schemas.partition.of a deleted topic", () -> shown(all.getSchemaInfo(t)));
    }

    private static void missing(Steps steps, Schemas all) {
        String t = steps.topic("without-topic");
        steps.run("schemas.missing.delete", () -> all.deleteSchema(t));
        steps.get("schemas.missing.check", () -> checked(all.testCompatibility(t, payload("AVRO", FIRST))));
        String n = "persistent://" + steps.namespace("nothing") + "/t";
        steps.get("schemas.missing namespace.get", () -> shown(all.getSchemaInfo(n)));
        steps.get("schemas.missing namespace.all", () -> listed(all, n));
        steps.run("schemas.missing namespace.create", () -> all.createSchema(n, payload("AVRO", FIRST)));
        steps.get("schemas.missing namespace.check", () -> checked(all.testCompatibility(n, payload("AVRO", FIRST))));
        steps.get("schemas.missing namespace.find", () -> all.getVersionBySchema(n, payload("AVRO", FIRST)));
    }

    /** A server may have created the topic for its schema, or not. */
    private static void delete(Steps steps, String topic) {
        try {
            steps.admin.schemas().deleteSchema(topic, true);
            steps.admin.topics().delete(topic, true);
        } catch (Exception error) {
            // There is none.
        }
    }

    private static PostSchemaPayload payload(String type, String definition) {
        return new PostSchemaPayload(type, definition, Map.of());
    }

    private static Map<String, Object> shown(SchemaInfo info) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("name", info.getName());
        found.put("type", info.getType().name());
        found.put("definition", info.getType() == org.apache.pulsar.common.schema.SchemaType.KEY_VALUE ? info.getSchemaDefinition() : new String(info.getSchema(), StandardCharsets.UTF_8));
        found.put("properties", new TreeMap<>(info.getProperties()));
        return found;
    }

    private static Map<String, Object> shown(SchemaInfoWithVersion found) {
        Map<String, Object> all = shown(found.getSchemaInfo());
        all.put("number", found.getVersion());
        return all;
    }

    private static List<Map<String, Object>> listed(Schemas all, String topic) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        for (SchemaInfo one : all.getAllSchemas(topic)) {
            found.add(shown(one));
        }
        return found;
    }

    private static List<Long> located(Schemas all, String topic) throws Exception {
        SchemaMetadata found = all.getSchemaMetadata(topic);
        List<Long> versions = new ArrayList<>();
        if (found == null) {
            return null;
        }
        // Its entries have no public fields.
        ObjectMapperFactory.getMapper().getObjectMapper().valueToTree(found).path("index").forEach(one -> versions.add(one.path("version").asLong()));
        return versions;
    }

    private static Map<String, Object> checked(IsCompatibilityResponse answer) {
        return Map.of("compatible", answer.isCompatibility(), "strategy", answer.getSchemaCompatibilityStrategy());
    }
}
