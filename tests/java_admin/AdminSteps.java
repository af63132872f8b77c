import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.common.policies.data.TenantInfo;

/**
 * Runs all {@link Steps} with Pulsar's admin client.
 *
 * <pre>java AdminSteps http://127.0.0.1:8080 http://127.0.0.1:8080 TENANT CLUSTER</pre>
 *
 * The tenant must not exist; it is deleted at the end.
 */
final class AdminSteps {
    public static void main(String[] arguments) throws Exception {
        PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[0]).readTimeout(20, TimeUnit.SECONDS)
                .requestTimeout(20, TimeUnit.SECONDS).build();
        // An http:// URL makes the client look topics up over HTTP.
        PulsarClient client = PulsarClient.builder().serviceUrl(arguments[1]).ioThreads(1).listenerThreads(1)
                .operationTimeout(20, TimeUnit.SECONDS).build();
        Steps steps = new Steps(admin, client, arguments[2], arguments[3]);
        try {
            runAll(steps, admin);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void runAll(Steps steps, PulsarAdmin admin) throws Exception {
        TenantSteps.run(steps);
        ClusterSteps.run(steps);
        admin.tenants().createTenant(steps.tenant, TenantInfo.builder().allowedClusters(Set.of(steps.cluster)).build());
        NamespaceSteps.run(steps);
        NamespacePolicySteps.run(steps);
        admin.namespaces().createNamespace(steps.namespace("topics"));
        TopicSteps.run(steps);
        TopicPolicySteps.run(steps);
        SchemaSteps.run(steps);
        SubscriptionSteps.run(steps);
        StatisticsSteps.run(steps);
        BrokerSteps.run(steps);
        steps.get("end.topics", () -> admin.topics().getList(steps.namespace("topics")).stream().filter(name -> !name.contains("__change_events")).sorted().toList());
        steps.run("end.namespace", () -> admin.namespaces().deleteNamespace(steps.namespace("topics")));
        steps.run("end.tenant", () -> admin.tenants().deleteTenant(steps.tenant));
    }
}
