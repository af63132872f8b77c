import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.pulsar.client.admin.ListNamespaceTopicsOptions;
import org.apache.pulsar.client.admin.Mode;
import org.apache.pulsar.client.admin.Namespaces;
import org.apache.pulsar.common.policies.data.BundlesData;
import org.apache.pulsar.common.policies.data.Policies;
import org.apache.pulsar.common.policies.data.RetentionPolicies;

final class NamespaceSteps {
    private static final String FIRST = "0x00000000_0x40000000";

    static void run(Steps steps) {
        Namespaces namespaces = steps.admin.namespaces();
        String plain = steps.namespace("plain");
        String missing = steps.namespace("missing");
        steps.get("namespaces.list.none", () -> namespaces.getNamespaces(steps.tenant));
        steps.get("namespaces.list.missing tenant", () -> namespaces.getNamespaces(steps.tenant + "-missing"));
        steps.run("namespaces.create.missing tenant", () -> namespaces.createNamespace(steps.tenant + "-missing/n"));
        steps.run("namespaces.create", () -> namespaces.createNamespace(plain));
        steps.run("namespaces.create.again", () -> namespaces.createNamespace(plain));
        steps.run("namespaces.create.bad name", () -> namespaces.createNamespace(steps.namespace("a b")));
        steps.run("namespaces.create.bundles", () -> namespaces.createNamespace(steps.namespace("bundles"), 2));
        steps.get("namespaces.bundles", () -> namespaces.getBundles(steps.namespace("bundles")));
        steps.run("namespaces.create.no bundles", () -> namespaces.createNamespace(steps.namespace("zero"), BundlesData.builder().numBundles(-1).build()));
        steps.run("namespaces.create.clusters", () -> namespaces.createNamespace(steps.namespace("clusters"), Set.of(steps.cluster)));
        steps.run("namespaces.create.unknown cluster", () -> namespaces.createNamespace(steps.namespace("nowhere"), Set.of("nowhere")));
        Policies policies = new Policies();
        policies.replication_clusters = Set.of(steps.cluster);
        policies.message_ttl_in_seconds = 60;
        policies.retention_policies = new RetentionPolicies(10, 5);
        policies.deduplicationEnabled = true;
        policies.properties = Map.of("key", "value");
        steps.run("namespaces.create.policies", () -> namespaces.createNamespace(steps.namespace("policies"), policies));
        steps.get("namespaces.policies.created", () -> namespaces.getPolicies(steps.namespace("policies")));
        steps.get("namespaces.policies", () -> namespaces.getPolicies(plain));
        steps.get("namespaces.policies.missing", () -> namespaces.getPolicies(missing));
        steps.get("namespaces.list", () -> namespaces.getNamespaces(steps.tenant).stream().sorted().toList());
        steps.get("namespaces.topics.none", () -> namespaces.getTopics(plain));
        steps.get("namespaces.topics.missing", () -> namespaces.getTopics(missing));
        steps.run("namespaces.topic", () -> steps.admin.topics().createNonPartitionedTopic("persistent://" + plain + "/t"));
        steps.run("namespaces.partitioned topic", () -> steps.admin.topics().createPartitionedTopic("persistent://" + plain + "/p", 2));
        steps.get("namespaces.topics", () -> namespaces.getTopics(plain).stream().sorted().toList());
        steps.get("namespaces.topics.all", () -> namespaces.getTopics(plain, ListNamespaceTopicsOptions.builder().mode(Mode.ALL).build()).stream().sorted().toList());
        steps.get("namespaces.topics.non-persistent", () -> namespaces.getTopics(plain, ListNamespaceTopicsOptions.builder().mode(Mode.NON_PERSISTENT).build()));
        steps.run("namespaces.delete.with topics", () -> namespaces.deleteNamespace(plain));
        steps.run("namespaces.unload", () -> namespaces.unload(plain));
        steps.run("namespaces.unload.missing", () -> namespaces.unload(missing));
        String bundled = steps.namespace("split");
        steps.run("namespaces.create.four", () -> namespaces.createNamespace(bundled, 4));
        steps.run("namespaces.unload.bundle", () -> namespaces.unloadNamespaceBundle(bundled, FIRST));
        steps.run("namespaces.unload.unknown bundle", () -> namespaces.unloadNamespaceBundle(bundled, "0x00000000_0x50000000"));
        steps.run("namespaces.split", () -> namespaces.splitNamespaceBundle(bundled, FIRST, true, null));
        steps.get("namespaces.bundles.split", () -> namespaces.getBundles(bundled));
        steps.run("namespaces.split.again", () -> namespaces.splitNamespaceBundle(bundled, FIRST, true, null));
        steps.run("namespaces.split.unknown algorithm", () -> namespaces.splitNamespaceBundle(bundled, "0x40000000_0x80000000", true, "unknown"));
        steps.run("namespaces.split.positions", () -> namespaces.splitNamespaceBundle(bundled, "0x40000000_0x80000000", true, "specified_positions_divide", List.of(0x50000000L)));
        steps.get("namespaces.bundles.positions", () -> namespaces.getBundles(bundled));
        steps.run("namespaces.clear backlog", () -> namespaces.clearNamespaceBacklog(plain));
        steps.run("namespaces.clear backlog.subscription", () -> namespaces.clearNamespaceBacklogForSubscription(plain, "s"));
        steps.run("namespaces.unsubscribe", () -> namespaces.unsubscribeNamespace(plain, "s"));
        steps.run("namespaces.delete.topic", () -> steps.admin.topics().delete("persistent://" + plain + "/t"));
        steps.run("namespaces.delete.partitioned", () -> steps.admin.topics().deletePartitionedTopic("persistent://" + plain + "/p"));
        for (String name : List.of("plain", "bundles", "zero", "clusters", "policies", "split")) {
            steps.run("namespaces.delete." + name, () -> namespaces.deleteNamespace(steps.namespace(name)));
        }
        steps.run("namespaces.delete.again", () -> namespaces.deleteNamespace(plain));
        steps.run("namespaces.delete.missing tenant", () -> namespaces.deleteNamespace(steps.tenant + "-missing/n"));
    }
}
