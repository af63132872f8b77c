import java.util.List;
import java.util.TreeSet;
import org.apache.pulsar.client.admin.Bookies;
import org.apache.pulsar.client.admin.BrokerStats;
import org.apache.pulsar.client.admin.Brokers;
import org.apache.pulsar.common.policies.data.BookieInfo;

final class BrokerSteps {
    private static final String RATE = "dispatchThrottlingRatePerTopicInMsg";

    static void run(Steps steps) {
        Brokers brokers = steps.admin.brokers();
        steps.get("brokers.list", () -> brokers.getActiveBrokers().size());
        steps.get("brokers.list.cluster", () -> brokers.getActiveBrokers(steps.cluster).size());
        steps.get("brokers.list.missing cluster", () -> brokers.getActiveBrokers("nowhere").size());
        steps.get("brokers.leader", () -> brokers.getLeaderBroker().getBrokerId() != null);
        steps.get("brokers.owned", () -> new TreeSet<>(brokers.getOwnedNamespaces(steps.cluster, brokers.getActiveBrokers().get(0)).values().stream().map(status -> status.is_active).toList()));
        steps.run("brokers.health", () -> brokers.healthcheck());
        steps.run("brokers.backlog quota check", () -> brokers.backlogQuotaCheck());
        steps.get("brokers.version", () -> !brokers.getVersion().isEmpty());
        steps.get("brokers.internal configuration", () -> brokers.getInternalConfigurationData() != null);
        steps.get("brokers.runtime configuration", () -> brokers.getRuntimeConfigurations().get("clusterName").equals(steps.cluster));
        steps.get("brokers.dynamic names", () -> brokers.getDynamicConfigurationNames().contains(RATE));
        steps.policy("brokers.dynamic", () -> brokers.getAllDynamicConfigurations(), () -> brokers.updateDynamicConfiguration(RATE, "77"), () -> brokers.deleteDynamicConfiguration(RATE));
        steps.run("brokers.dynamic.unknown", () -> brokers.updateDynamicConfiguration("unknown", "77"));
        steps.run("brokers.dynamic.not a number", () -> brokers.updateDynamicConfiguration(RATE, "many"));
        steps.run("brokers.dynamic.not a number.remove", () -> brokers.deleteDynamicConfiguration(RATE));
        steps.run("brokers.dynamic.static", () -> brokers.updateDynamicConfiguration("clusterName", "other"));
        steps.run("brokers.dynamic.delete.unknown", () -> brokers.deleteDynamicConfiguration("unknown"));
        BrokerStats stats = steps.admin.brokerStats();
        steps.get("broker stats.metrics", () -> stats.getMetrics().startsWith("["));
        steps.get("broker stats.mbeans", () -> stats.getMBeans().startsWith("["));
        steps.get("broker stats.topics", () -> stats.getTopics().startsWith("{"));
        steps.get("broker stats.pending bookie ops", () -> stats.getPendingBookieOpsStats().startsWith("{"));
        steps.get("broker stats.load report", () -> stats.getLoadReport() != null);
        steps.get("broker stats.allocator", () -> stats.getAllocatorStats("default") != null);
        Bookies bookies = steps.admin.bookies();
        steps.get("bookies.all", () -> bookies.getBookies().getBookies().isEmpty());
        steps.get("bookies.rack.missing", () -> bookies.getBookieRackInfo("missing:1"));
        steps.policy("bookies.rack", () -> bookies.getBookiesRackInfo(), () -> bookies.updateBookieRackInfo("127.0.0.1:1", "group", BookieInfo.builder().rack("/rack").hostname("host").build()), () -> bookies.deleteBookieRackInfo("127.0.0.1:1"));
        steps.run("bookies.rack.delete.missing", () -> bookies.deleteBookieRackInfo("missing:1"));
    }
}
