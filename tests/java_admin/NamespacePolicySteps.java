import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.Namespaces;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.AuthAction;
import org.apache.pulsar.common.policies.data.AutoSubscriptionCreationOverride;
import org.apache.pulsar.common.policies.data.AutoTopicCreationOverride;
import org.apache.pulsar.common.policies.data.BacklogQuota;
import org.apache.pulsar.common.policies.data.BacklogQuota.BacklogQuotaType;
import org.apache.pulsar.common.policies.data.DelayedDeliveryPolicies;
import org.apache.pulsar.common.policies.data.DispatchRate;
import org.apache.pulsar.common.policies.data.EntryFilters;
import org.apache.pulsar.common.policies.data.InactiveTopicDeleteMode;
import org.apache.pulsar.common.policies.data.InactiveTopicPolicies;
import org.apache.pulsar.common.policies.data.PersistencePolicies;
import org.apache.pulsar.common.policies.data.PublishRate;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.SchemaAutoUpdateCompatibilityStrategy;
import org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy;
import org.apache.pulsar.common.policies.data.SubscribeRate;
import org.apache.pulsar.common.policies.data.SubscriptionAuthMode;

final class NamespacePolicySteps {
    static final DispatchRate RATE = DispatchRate.builder().dispatchThrottlingRateInMsg(10).dispatchThrottlingRateInByte(1000).ratePeriodInSecond(1).build();
    static final DelayedDeliveryPolicies DELAYED = DelayedDeliveryPolicies.builder().active(true).tickTime(1000).maxDeliveryDelayInMillis(5000).build();
    static final InactiveTopicPolicies INACTIVE = new InactiveTopicPolicies(InactiveTopicDeleteMode.delete_when_no_subscriptions, 60, true);
    static final PersistencePolicies PERSISTENCE = new PersistencePolicies(1, 1, 1, 2.0);
    static final BacklogQuota QUOTA = BacklogQuota.builder().limitSize(1000).retentionPolicy(BacklogQuota.RetentionPolicy.producer_exception).build();
    static final BacklogQuota AGE = BacklogQuota.builder().limitTime(60).retentionPolicy(BacklogQuota.RetentionPolicy.consumer_backlog_eviction).build();

    static void run(Steps steps) throws Exception {
        Namespaces all = steps.admin.namespaces();
        String n = steps.namespace("with-policies");
        String missing = steps.namespace("missing");
        all.createNamespace(n);
        policies(steps, all, n);
        numbers(steps, all, n);
        steps.get("ns.missing.retention.get", () -> all.getRetention(missing));
        steps.run("ns.missing.retention.set", () -> all.setRetention(missing, new RetentionPolicies(1, 1)));
        steps.run("ns.missing.retention.remove", () -> all.removeRetention(missing));
        steps.get("ns.missing.ttl.get", () -> all.getNamespaceMessageTTL(missing));
        steps.run("ns.missing.ttl.set", () -> all.setNamespaceMessageTTL(missing, 3));
        steps.get("ns.missing.quota.get", () -> all.getBacklogQuotaMap(missing));
        invalid(steps, all, n);
        steps.get("ns.policies", () -> all.getPolicies(n));
        all.deleteNamespace(n);
    }

    private static void policies(Steps steps, Namespaces all, String n) {
        steps.policy("ns.retention", () -> all.getRetention(n), () -> all.setRetention(n, new RetentionPolicies(10, 5)), () -> all.removeRetention(n));
        steps.policy("ns.persistence", () -> all.getPersistence(n), () -> all.setPersistence(n, PERSISTENCE), () -> all.removePersistence(n));
        steps.policy("ns.deduplication", () -> all.getDeduplicationStatus(n), () -> all.setDeduplicationStatus(n, true), () -> all.removeDeduplicationStatus(n));
        steps.policy("ns.auto topic creation", () -> all.getAutoTopicCreation(n), () -> all.setAutoTopicCreation(n, AutoTopicCreationOverride.builder().allowAutoTopicCreation(true).topicType("partitioned").defaultNumPartitions(3).build()), () -> all.removeAutoTopicCreation(n));
        steps.policy("ns.no auto topic creation", () -> all.getAutoTopicCreation(n), () -> all.setAutoTopicCreation(n, AutoTopicCreationOverride.builder().allowAutoTopicCreation(false).build()), () -> all.removeAutoTopicCreation(n));
        steps.policy("ns.auto subscription creation", () -> all.getAutoSubscriptionCreation(n), () -> all.setAutoSubscriptionCreation(n, AutoSubscriptionCreationOverride.builder().allowAutoSubscriptionCreation(false).build()), () -> all.removeAutoSubscriptionCreation(n));
        steps.policy("ns.publish rate", () -> all.getPublishRate(n), () -> all.setPublishRate(n, new PublishRate(10, 20)), () -> all.removePublishRate(n));
        steps.policy("ns.dispatch rate", () -> all.getDispatchRate(n), () -> all.setDispatchRate(n, RATE), () -> all.removeDispatchRate(n));
        steps.policy("ns.subscription dispatch rate", () -> all.getSubscriptionDispatchRate(n), () -> all.setSubscriptionDispatchRate(n, RATE), () -> all.removeSubscriptionDispatchRate(n));
        steps.policy("ns.replicator dispatch rate", () -> all.getReplicatorDispatchRate(n), () -> all.setReplicatorDispatchRate(n, RATE), () -> all.removeReplicatorDispatchRate(n));
        steps.policy("ns.subscribe rate", () -> all.getSubscribeRate(n), () -> all.setSubscribeRate(n, new SubscribeRate(5, 30)), () -> all.removeSubscribeRate(n));
        steps.policy("ns.encryption", () -> all.getEncryptionRequiredStatus(n), () -> all.setEncryptionRequiredStatus(n, true), () -> all.setEncryptionRequiredStatus(n, false));
        steps.policy("ns.delayed delivery", () -> all.getDelayedDelivery(n), () -> all.setDelayedDeliveryMessages(n, DELAYED), () -> all.removeDelayedDeliveryMessages(n));
        steps.policy("ns.inactive topics", () -> all.getInactiveTopicPolicies(n), () -> all.setInactiveTopicPolicies(n, INACTIVE), () -> all.removeInactiveTopicPolicies(n));
        steps.policy("ns.subscription auth mode", () -> all.getSubscriptionAuthMode(n), () -> all.setSubscriptionAuthMode(n, SubscriptionAuthMode.Prefix), null);
        steps.policy("ns.subscription types", () -> all.getSubscriptionTypesEnabled(n), () -> all.setSubscriptionTypesEnabled(n, Set.of(SubscriptionType.Shared)), () -> all.removeSubscriptionTypesEnabled(n));
        steps.policy("ns.anti-affinity", () -> all.getNamespaceAntiAffinityGroup(n), () -> all.setNamespaceAntiAffinityGroup(n, "group"), () -> all.deleteNamespaceAntiAffinityGroup(n));
        steps.policy("ns.replication clusters", () -> all.getNamespaceReplicationClusters(n), () -> all.setNamespaceReplicationClusters(n, Set.of(steps.cluster), true), null);
        steps.policy("ns.entry filters", () -> all.getNamespaceEntryFilters(n), () -> all.setNamespaceEntryFilters(n, new EntryFilters("filter")), () -> all.removeNamespaceEntryFilters(n));
        steps.policy("ns.schema compatibility", () -> all.getSchemaCompatibilityStrategy(n), () -> all.setSchemaCompatibilityStrategy(n, SchemaCompatibilityStrategy.FULL), null);
        steps.policy("ns.schema auto update", () -> all.getSchemaAutoUpdateCompatibilityStrategy(n), () -> all.setSchemaAutoUpdateCompatibilityStrategy(n, SchemaAutoUpdateCompatibilityStrategy.Backward), null);
        steps.policy("ns.schema validation", () -> all.getSchemaValidationEnforced(n), () -> all.setSchemaValidationEnforced(n, true), () -> all.setSchemaValidationEnforced(n, false));
        steps.get("ns.schema validation.applied", () -> all.getSchemaValidationEnforced(n, true));
        steps.policy("ns.allow schema update", () -> all.getIsAllowAutoUpdateSchema(n), () -> all.setIsAllowAutoUpdateSchema(n, false), () -> all.setIsAllowAutoUpdateSchema(n, true));
        steps.policy("ns.ack state", () -> all.getDispatcherPauseOnAckStatePersistent(n), () -> all.setDispatcherPauseOnAckStatePersistent(n), () -> all.removeDispatcherPauseOnAckStatePersistent(n));
        steps.policy("ns.property", () -> all.getProperty(n, "key"), () -> all.setProperty(n, "key", "value"), () -> all.removeProperty(n, "key"));
        steps.policy("ns.properties", () -> all.getProperties(n), () -> all.setProperties(n, Map.of("a", "b", "c", "d")), () -> all.clearProperties(n));
        steps.policy("ns.permissions", () -> all.getPermissions(n), () -> all.grantPermissionOnNamespace(n, "role", Set.of(AuthAction.produce)), () -> all.revokePermissionsOnNamespace(n, "role"));
        steps.policy("ns.backlog quota", () -> all.getBacklogQuotaMap(n), () -> all.setBacklogQuota(n, QUOTA), () -> all.removeBacklogQuota(n));
        steps.policy("ns.backlog age", () -> all.getBacklogQuotaMap(n), () -> all.setBacklogQuota(n, AGE, BacklogQuotaType.message_age), () -> all.removeBacklogQuota(n, BacklogQuotaType.message_age));
        steps.policy("ns.resource group", () -> all.getNamespaceResourceGroup(n), () -> all.setNamespaceResourceGroup(n, "missing"), () -> all.removeNamespaceResourceGroup(n));
        steps.get("ns.offload policies", () -> all.getOffloadPolicies(n));
        steps.get("ns.bookie affinity", () -> all.getBookieAffinityGroup(n));
        steps.get("ns.allowed clusters", () -> all.getNamespaceAllowedClusters(n));
        steps.get("ns.subscription permissions", () -> all.getPermissionOnSubscription(n));
    }

    private static void numbers(Steps steps, Namespaces all, String n) {
        steps.policy("ns.ttl", () -> all.getNamespaceMessageTTL(n), () -> all.setNamespaceMessageTTL(n, 60), () -> all.removeNamespaceMessageTTL(n));
        steps.policy("ns.subscription expiration", () -> all.getSubscriptionExpirationTime(n), () -> all.setSubscriptionExpirationTime(n, 10), () -> all.removeSubscriptionExpirationTime(n));
        steps.policy("ns.snapshot interval", () -> all.getDeduplicationSnapshotInterval(n), () -> all.setDeduplicationSnapshotInterval(n, 10), () -> all.removeDeduplicationSnapshotInterval(n));
        steps.policy("ns.max subscriptions", () -> all.getMaxSubscriptionsPerTopic(n), () -> all.setMaxSubscriptionsPerTopic(n, 3), () -> all.removeMaxSubscriptionsPerTopic(n));
        steps.policy("ns.max producers", () -> all.getMaxProducersPerTopic(n), () -> all.setMaxProducersPerTopic(n, 3), () -> all.removeMaxProducersPerTopic(n));
        steps.policy("ns.max consumers", () -> all.getMaxConsumersPerTopic(n), () -> all.setMaxConsumersPerTopic(n, 3), () -> all.removeMaxConsumersPerTopic(n));
        steps.policy("ns.max subscription consumers", () -> all.getMaxConsumersPerSubscription(n), () -> all.setMaxConsumersPerSubscription(n, 3), () -> all.removeMaxConsumersPerSubscription(n));
        steps.policy("ns.max unacked of consumer", () -> all.getMaxUnackedMessagesPerConsumer(n), () -> all.setMaxUnackedMessagesPerConsumer(n, 3), () -> all.removeMaxUnackedMessagesPerConsumer(n));
        steps.policy("ns.max unacked of subscription", () -> all.getMaxUnackedMessagesPerSubscription(n), () -> all.setMaxUnackedMessagesPerSubscription(n, 3), () -> all.removeMaxUnackedMessagesPerSubscription(n));
        steps.policy("ns.compaction threshold", () -> all.getCompactionThreshold(n), () -> all.setCompactionThreshold(n, 1000), () -> all.removeCompactionThreshold(n));
        steps.policy("ns.max topics", () -> all.getMaxTopicsPerNamespace(n), () -> all.setMaxTopicsPerNamespace(n, 30), () -> all.removeMaxTopicsPerNamespace(n));
        steps.policy("ns.offload threshold", () -> all.getOffloadThreshold(n), () -> all.setOffloadThreshold(n, 1000), null);
        steps.policy("ns.offload seconds", () -> all.getOffloadThresholdInSeconds(n), () -> all.setOffloadThresholdInSeconds(n, 1000), null);
        steps.policy("ns.offload lag", () -> all.getOffloadDeleteLagMs(n), () -> all.setOffloadDeleteLag(n, 1000, TimeUnit.MILLISECONDS), () -> all.clearOffloadDeleteLag(n));
    }

    private static void invalid(Steps steps, Namespaces all, String n) {
        steps.run("ns.invalid.retention", () -> all.setRetention(n, new RetentionPolicies(0, 5)));
        steps.run("ns.invalid.retention.negative", () -> all.setRetention(n, new RetentionPolicies(-2, 5)));
        steps.run("ns.invalid.ttl", () -> all.setNamespaceMessageTTL(n, -1));
        steps.run("ns.invalid.subscription expiration", () -> all.setSubscriptionExpirationTime(n, -1));
        steps.run("ns.invalid.persistence", () -> all.setPersistence(n, new PersistencePolicies(1, 3, 1, 0)));
        steps.run("ns.invalid.max producers", () -> all.setMaxProducersPerTopic(n, -1));
        steps.run("ns.invalid.max consumers", () -> all.setMaxConsumersPerTopic(n, -1));
        steps.run("ns.invalid.max subscriptions", () -> all.setMaxSubscriptionsPerTopic(n, -1));
        steps.run("ns.invalid.max topics", () -> all.setMaxTopicsPerNamespace(n, -1));
        steps.run("ns.invalid.compaction threshold", () -> all.setCompactionThreshold(n, -1));
        steps.run("ns.invalid.delayed delivery", () -> all.setDelayedDeliveryMessages(n, DelayedDeliveryPolicies.builder().active(true).tickTime(0).build()));
        steps.run("ns.invalid.inactive topics", () -> all.setInactiveTopicPolicies(n, new InactiveTopicPolicies(InactiveTopicDeleteMode.delete_when_no_subscriptions, 0, true)));
        steps.run("ns.invalid.auto topic creation", () -> all.setAutoTopicCreation(n, AutoTopicCreationOverride.builder().allowAutoTopicCreation(true).topicType("partitioned").defaultNumPartitions(0).build()));
        steps.run("ns.invalid.replication clusters", () -> all.setNamespaceReplicationClusters(n, Set.of("nowhere"), true));
        steps.run("ns.invalid.allowed clusters", () -> all.setNamespaceAllowedClusters(n, Set.of("nowhere")));
    }
}
