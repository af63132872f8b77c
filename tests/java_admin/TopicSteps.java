import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.pulsar.client.admin.Topics;
import org.apache.pulsar.common.naming.TopicDomain;
import org.apache.pulsar.common.policies.data.AuthAction;

final class TopicSteps {
    static void run(Steps steps) {
        Topics topics = steps.admin.topics();
        plain(steps, topics, "topics.", steps.topic("plain"));
        partitioned(steps, topics, "partitioned.", steps.topic("partitioned"));
        plain(steps, topics, "np.topics.", steps.topic("plain").replace("persistent:", "non-persistent:"));
        partitioned(steps, topics, "np.partitioned.", steps.topic("partitioned").replace("persistent:", "non-persistent:"));
        names(steps, topics);
        lookups(steps);
    }

    private static void plain(Steps steps, Topics topics, String of, String topic) {
        steps.get(of + "partitions.missing", () -> topics.getPartitionedTopicMetadata(topic));
        steps.run(of + "delete.missing", () -> topics.delete(topic));
        steps.run(of + "create", () -> topics.createNonPartitionedTopic(topic, Map.of("key", "value")));
        steps.run(of + "create.again", () -> topics.createNonPartitionedTopic(topic));
        steps.run(of + "create.partitioned", () -> topics.createPartitionedTopic(topic, 2));
        steps.get(of + "partitions", () -> topics.getPartitionedTopicMetadata(topic));
        steps.run(of + "update partitions", () -> topics.updatePartitionedTopic(topic, 2));
        steps.run(of + "delete partitions", () -> topics.deletePartitionedTopic(topic));
        if (topic.startsWith("persistent")) {
            steps.policy(of + "properties", () -> topics.getProperties(topic), () -> topics.updateProperties(topic, Map.of("more", "values")), () -> topics.removeProperties(topic, "key"));
            steps.policy(of + "permissions", () -> topics.getPermissions(topic), () -> topics.grantPermission(topic, "role", Set.of(AuthAction.consume)), () -> topics.revokePermissions(topic, "role"));
        }
        steps.get(of + "list", () -> sorted(topics.getList(steps.namespace("topics"))));
        steps.run(of + "unload", () -> topics.unload(topic));
        steps.run(of + "delete", () -> topics.delete(topic));
        steps.run(of + "delete.again", () -> topics.delete(topic));
        steps.run(of + "delete.missing.force", () -> topics.delete(topic, true));
    }

    private static void partitioned(Steps steps, Topics topics, String of, String topic) {
        steps.run(of + "create", () -> topics.createPartitionedTopic(topic, 2, Map.of("key", "value")));
        steps.run(of + "create.again", () -> topics.createPartitionedTopic(topic, 2));
        steps.run(of + "create.plain", () -> topics.createNonPartitionedTopic(topic));
        steps.get(of + "partitions", () -> topics.getPartitionedTopicMetadata(topic));
        steps.get(of + "properties", () -> topics.getProperties(topic));
        steps.run(of + "grow", () -> topics.updatePartitionedTopic(topic, 4));
        steps.get(of + "partitions.grown", () -> topics.getPartitionedTopicMetadata(topic));
        steps.run(of + "shrink", () -> topics.updatePartitionedTopic(topic, 3));
        steps.run(of + "create.none", () -> topics.createPartitionedTopic(topic + "-none", 0));
        steps.get(of + "list.partitioned", () -> sorted(topics.getPartitionedTopicList(steps.namespace("topics"))));
        steps.get(of + "list", () -> sorted(topics.getList(steps.namespace("topics"), topic.startsWith("persistent") ? TopicDomain.persistent : TopicDomain.non_persistent)));
        steps.run(of + "delete.plain", () -> topics.delete(topic));
        steps.run(of + "create missed", () -> topics.createMissedPartitions(topic));
        steps.run(of + "create missed.missing", () -> topics.createMissedPartitions(topic + "-missing"));
        steps.run(of + "create.partition beyond", () -> topics.createNonPartitionedTopic(topic + "-partition-9"));
        steps.run(of + "delete", () -> topics.deletePartitionedTopic(topic));
        steps.run(of + "delete.again", () -> topics.deletePartitionedTopic(topic));
        steps.get(of + "list.deleted", () -> sorted(topics.getList(steps.namespace("topics"))));
    }

    private static void names(Steps steps, Topics topics) {
        for (String name : List.of("a b", "a/b", "ä", "a:b", "a%b", "a+b")) {
            steps.run("names.create." + name, () -> topics.createNonPartitionedTopic(steps.topic(name)));
            steps.get("names.partitions." + name, () -> topics.getPartitionedTopicMetadata(steps.topic(name)));
            steps.run("names.delete." + name, () -> topics.delete(steps.topic(name)));
        }
        String missing = "persistent://" + steps.namespace("missing") + "/t";
        steps.run("names.create.missing namespace", () -> topics.createNonPartitionedTopic(missing));
        steps.run("names.create.missing namespace.partitioned", () -> topics.createPartitionedTopic(missing, 2));
        steps.get("names.list.missing namespace", () -> topics.getList(steps.namespace("missing")));
        steps.get("names.list.partitioned.missing namespace", () -> topics.getPartitionedTopicList(steps.namespace("missing")));
        steps.run("names.create.missing tenant", () -> topics.createNonPartitionedTopic("persistent://" + steps.tenant + "-missing/n/t"));
        steps.run("names.delete.missing namespace", () -> topics.delete(missing));
    }

    private static void lookups(Steps steps) {
        String topic = steps.topic("lookup");
        steps.run("lookups.create", () -> steps.admin.topics().createPartitionedTopic(topic, 2));
        steps.get("lookups.partition", () -> steps.admin.lookups().lookupTopic(topic + "-partition-0"));
        steps.get("lookups.partitioned", () -> steps.admin.lookups().lookupPartitionedTopic(topic));
        steps.get("lookups.bundle", () -> steps.admin.lookups().getBundleRange(topic).matches("0x[0-9a-f]{8}_0x[0-9a-f]{8}"));
        steps.get("lookups.missing", () -> steps.admin.lookups().lookupTopic(steps.topic("missing")));
        steps.get("lookups.partitioned.missing", () -> steps.admin.lookups().lookupPartitionedTopic(steps.topic("missing")));
        steps.get("lookups.missing namespace", () -> steps.admin.lookups().lookupTopic("persistent://" + steps.namespace("missing") + "/t"));
        steps.get("lookups.bundle.missing namespace", () -> steps.admin.lookups().getBundleRange("persistent://" + steps.namespace("missing") + "/t").length());
        steps.run("lookups.delete", () -> steps.admin.topics().deletePartitionedTopic(topic));
    }

    private static List<String> sorted(List<String> names) {
        return names.stream().filter(name -> !name.contains("__change_events")).sorted().toList();
    }
}
