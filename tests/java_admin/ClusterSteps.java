import java.util.LinkedHashSet;
import java.util.List;
import org.apache.pulsar.client.admin.Clusters;
import org.apache.pulsar.common.policies.data.ClusterData;

final class ClusterSteps {
    static void run(Steps steps) {
        Clusters clusters = steps.admin.clusters();
        String other = steps.tenant + "-cluster";
        steps.get("clusters.list", () -> clusters.getClusters().contains(steps.cluster));
        steps.get("clusters.get", () -> clusters.getCluster(steps.cluster));
        steps.get("clusters.get.missing", () -> clusters.getCluster(other));
        steps.run("clusters.update.missing", () -> clusters.updateCluster(other, data(1)));
        steps.run("clusters.delete.missing", () -> clusters.deleteCluster(other));
        steps.run("clusters.create", () -> clusters.createCluster(other, data(1)));
        steps.run("clusters.create.again", () -> clusters.createCluster(other, data(1)));
        steps.get("clusters.get.created", () -> clusters.getCluster(other));
        steps.run("clusters.update", () -> clusters.updateCluster(other, data(2)));
        steps.get("clusters.get.updated", () -> clusters.getCluster(other));
        steps.get("clusters.peers", () -> clusters.getPeerClusterNames(other));
        steps.run("clusters.peers.set", () -> clusters.updatePeerClusterNames(other, new LinkedHashSet<>(List.of(steps.cluster))));
        steps.get("clusters.peers.get", () -> clusters.getPeerClusterNames(other));
        steps.run("clusters.peers.unknown", () -> clusters.updatePeerClusterNames(other, new LinkedHashSet<>(List.of("nowhere"))));
        steps.get("clusters.failure domains", () -> clusters.getFailureDomains(steps.cluster));
        steps.get("clusters.failure domain.missing", () -> clusters.getFailureDomain(steps.cluster, "missing"));
        steps.get("clusters.isolation policies", () -> clusters.getNamespaceIsolationPolicies(steps.cluster));
        steps.get("clusters.isolation policy.missing", () -> clusters.getNamespaceIsolationPolicy(steps.cluster, "missing"));
        steps.run("clusters.delete", () -> clusters.deleteCluster(other));
        steps.get("clusters.get.deleted", () -> clusters.getCluster(other));
    }

    private static ClusterData data(int port) {
        return ClusterData.builder().serviceUrl("http://127.0.0.1:" + port).brokerServiceUrl("pulsar://127.0.0.1:" + port).build();
    }
}
