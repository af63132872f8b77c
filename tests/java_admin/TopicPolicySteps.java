import java.util.List;
import java.util.Set;
import org.apache.pulsar.client.admin.TopicPolicies;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.AutoSubscriptionCreationOverride;
import org.apache.pulsar.common.policies.data.BacklogQuota.BacklogQuotaType;
import org.apache.pulsar.common.policies.data.EntryFilters;
import org.apache.pulsar.common.policies.data.InactiveTopicDeleteMode;
import org.apache.pulsar.common.policies.data.InactiveTopicPolicies;
import org.apache.pulsar.common.policies.data.PersistencePolicies;
import org.apache.pulsar.common.policies.data.PublishRate;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy;
import org.apache.pulsar.common.policies.data.SubscribeRate;

final class TopicPolicySteps {
    static void run(Steps steps) throws Exception {
        TopicPolicies all = steps.admin.topicPolicies();
        String t = steps.topic("with-policies");
        steps.admin.topics().createNonPartitionedTopic(t);
        applied(steps, all, t);
        others(steps, all, t);
        numbers(steps, all, t);
        invalid(steps, all, t);
        String missing = steps.topic("missing");
        steps.get("topic.missing.retention.get", () -> all.getRetention(missing));
        steps.run("topic.missing.retention.set", () -> all.setRetention(missing, new RetentionPolicies(1, 1)));
        steps.run("topic.missing.retention.remove", () -> all.removeRetention(missing));
        steps.run("topic.policies.delete", () -> all.deleteTopicPolicies(t));
        steps.run("topic.delete", () -> steps.admin.topics().delete(t));
    }

    private static void applied(Steps steps, TopicPolicies all, String t) {
        steps.get("topic.applied.retention", () -> all.getRetention(t, true));
        steps.get("topic.applied.ttl", () -> all.getMessageTTL(t, true));
        steps.get("topic.applied.backlog quota", () -> all.getBacklogQuotaMap(t, true));
        steps.get("topic.applied.delayed delivery", () -> all.getDelayedDeliveryPolicy(t, true));
        steps.get("topic.applied.inactive topics", () -> all.getInactiveTopicPolicies(t, true));
        steps.get("topic.applied.persistence", () -> all.getPersistence(t, true));
        steps.get("topic.applied.deduplication", () -> all.getDeduplicationStatus(t, true));
        steps.get("topic.applied.dispatch rate", () -> all.getDispatchRate(t, true));
        steps.get("topic.applied.subscription dispatch rate", () -> all.getSubscriptionDispatchRate(t, true));
        steps.get("topic.applied.replicator dispatch rate", () -> all.getReplicatorDispatchRate(t, true));
        steps.get("topic.applied.compaction threshold", () -> all.getCompactionThreshold(t, true));
        steps.get("topic.applied.max producers", () -> all.getMaxProducers(t, true));
        steps.get("topic.applied.max consumers", () -> all.getMaxConsumers(t, true));
        steps.get("topic.applied.max unacked of consumer", () -> all.getMaxUnackedMessagesOnConsumer(t, true));
        steps.get("topic.applied.max unacked of subscription", () -> all.getMaxUnackedMessagesOnSubscription(t, true));
        steps.get("topic.applied.subscribe rate", () -> all.getSubscribeRate(t, true));
        steps.get("topic.applied.schema compatibility", () -> all.getSchemaCompatibilityStrategy(t, true));
        steps.get("topic.applied.entry filters", () -> all.getEntryFiltersPerTopic(t, true));
        steps.get("topic.applied.replication clusters", () -> all.getReplicationClusters(t, true));
    }

    private static void others(Steps steps, TopicPolicies all, String t) {
        steps.policy("topic.retention", () -> all.getRetention(t), () -> all.setRetention(t, new RetentionPolicies(10, 5)), () -> all.removeRetention(t));
        steps.policy("topic.persistence", () -> all.getPersistence(t), () -> all.setPersistence(t, NamespacePolicySteps.PERSISTENCE), () -> all.removePersistence(t));
        steps.policy("topic.deduplication", () -> all.getDeduplicationStatus(t), () -> all.setDeduplicationStatus(t, true), () -> all.removeDeduplicationStatus(t));
        steps.policy("topic.publish rate", () -> all.getPublishRate(t), () -> all.setPublishRate(t, new PublishRate(10, 20)), () -> all.removePublishRate(t));
        steps.policy("topic.dispatch rate", () -> all.getDispatchRate(t), () -> all.setDispatchRate(t, NamespacePolicySteps.RATE), () -> all.removeDispatchRate(t));
        steps.policy("topic.subscription dispatch rate", () -> all.getSubscriptionDispatchRate(t), () -> all.setSubscriptionDispatchRate(t, NamespacePolicySteps.RATE), () -> all.removeSubscriptionDispatchRate(t));
        steps.policy("topic.dispatch rate of subscription", () -> all.getSubscriptionDispatchRate(t, "s"), () -> all.setSubscriptionDispatchRate(t, "s", NamespacePolicySteps.RATE), () -> all.removeSubscriptionDispatchRate(t, "s"));
        steps.policy("topic.replicator dispatch rate", () -> all.getReplicatorDispatchRate(t), () -> all.setReplicatorDispatchRate(t, NamespacePolicySteps.RATE), () -> all.removeReplicatorDispatchRate(t));
        steps.policy("topic.subscribe rate", () -> all.getSubscribeRate(t), () -> all.setSubscribeRate(t, new SubscribeRate(5, 30)), () -> all.removeSubscribeRate(t));
        steps.policy("topic.delayed delivery", () -> all.getDelayedDeliveryPolicy(t), () -> all.setDelayedDeliveryPolicy(t, NamespacePolicySteps.DELAYED), () -> all.removeDelayedDeliveryPolicy(t));
        steps.policy("topic.inactive topics", () -> all.getInactiveTopicPolicies(t), () -> all.setInactiveTopicPolicies(t, NamespacePolicySteps.INACTIVE), () -> all.removeInactiveTopicPolicies(t));
        steps.policy("topic.subscription types", () -> all.getSubscriptionTypesEnabled(t), () -> all.setSubscriptionTypesEnabled(t, Set.of(SubscriptionType.Shared)), () -> all.removeSubscriptionTypesEnabled(t));
        steps.policy("topic.entry filters", () -> all.getEntryFiltersPerTopic(t, false), () -> all.setEntryFiltersPerTopic(t, new EntryFilters("filter")), () -> all.removeEntryFiltersPerTopic(t));
        steps.policy("topic.schema compatibility", () -> all.getSchemaCompatibilityStrategy(t, false), () -> all.setSchemaCompatibilityStrategy(t, SchemaCompatibilityStrategy.FULL), () -> all.removeSchemaCompatibilityStrategy(t));
        steps.policy("topic.schema validation", () -> steps.admin.topics().getSchemaValidationEnforced(t, false), () -> steps.admin.topics().setSchemaValidationEnforced(t, true), () -> steps.admin.topics().setSchemaValidationEnforced(t, false));
        steps.get("topic.schema validation.applied", () -> steps.admin.topics().getSchemaValidationEnforced(t, true));
        steps.policy("topic.auto subscription creation", () -> all.getAutoSubscriptionCreation(t, false), () -> all.setAutoSubscriptionCreation(t, AutoSubscriptionCreationOverride.builder().allowAutoSubscriptionCreation(true).build()), () -> all.removeAutoSubscriptionCreation(t));
        steps.policy("topic.replication clusters", () -> all.getReplicationClusters(t, false), () -> all.setReplicationClusters(t, List.of(steps.cluster)).get(), () -> all.removeReplicationClusters(t));
        steps.policy("topic.backlog quota", () -> all.getBacklogQuotaMap(t), () -> all.setBacklogQuota(t, NamespacePolicySteps.QUOTA), () -> all.removeBacklogQuota(t));
        steps.policy("topic.backlog age", () -> all.getBacklogQuotaMap(t), () -> all.setBacklogQuota(t, NamespacePolicySteps.AGE, BacklogQuotaType.message_age), () -> all.removeBacklogQuota(t, BacklogQuotaType.message_age));
    }

    private static void numbers(Steps steps, TopicPolicies all, String t) {
        steps.policy("topic.ttl", () -> all.getMessageTTL(t), () -> all.setMessageTTL(t, 60), () -> all.removeMessageTTL(t));
        steps.policy("topic.snapshot interval", () -> all.getDeduplicationSnapshotInterval(t), () -> all.setDeduplicationSnapshotInterval(t, 10), () -> all.removeDeduplicationSnapshotInterval(t));
        steps.policy("topic.max subscriptions", () -> all.getMaxSubscriptionsPerTopic(t), () -> all.setMaxSubscriptionsPerTopic(t, 3), () -> all.removeMaxSubscriptionsPerTopic(t));
        steps.policy("topic.max producers", () -> all.getMaxProducers(t), () -> all.setMaxProducers(t, 3), () -> all.removeMaxProducers(t));
        steps.policy("topic.max consumers", () -> all.getMaxConsumers(t), () -> all.setMaxConsumers(t, 3), () -> all.removeMaxConsumers(t));
        steps.policy("topic.max subscription consumers", () -> all.getMaxConsumersPerSubscription(t), () -> all.setMaxConsumersPerSubscription(t, 3), () -> all.removeMaxConsumersPerSubscription(t));
        steps.policy("topic.max unacked of consumer", () -> all.getMaxUnackedMessagesOnConsumer(t), () -> all.setMaxUnackedMessagesOnConsumer(t, 3), () -> all.removeMaxUnackedMessagesOnConsumer(t));
        steps.policy("topic.max unacked of subscription", () -> all.getMaxUnackedMessagesOnSubscription(t), () -> all.setMaxUnackedMessagesOnSubscription(t, 3), () -> all.removeMaxUnackedMessagesOnSubscription(t));
        steps.policy("topic.max message size", () -> all.getMaxMessageSize(t), () -> all.setMaxMessageSize(t, 1000), () -> all.removeMaxMessageSize(t));
        steps.policy("topic.compaction threshold", () -> all.getCompactionThreshold(t), () -> all.setCompactionThreshold(t, 1000), () -> all.removeCompactionThreshold(t));
    }

    private static void invalid(Steps steps, TopicPolicies all, String t) {
        steps.run("topic.invalid.retention", () -> all.setRetention(t, new RetentionPolicies(0, 5)));
        steps.run("topic.invalid.ttl", () -> all.setMessageTTL(t, -1));
        steps.run("topic.invalid.persistence", () -> all.setPersistence(t, new PersistencePolicies(1, 3, 1, 0)));
        steps.run("topic.invalid.max producers", () -> all.setMaxProducers(t, -1));
        steps.run("topic.invalid.max consumers", () -> all.setMaxConsumers(t, -1));
        steps.run("topic.invalid.max message size", () -> all.setMaxMessageSize(t, -1));
        steps.run("topic.invalid.compaction threshold", () -> all.setCompactionThreshold(t, -1));
        steps.run("topic.invalid.inactive topics", () -> all.setInactiveTopicPolicies(t, new InactiveTopicPolicies(InactiveTopicDeleteMode.delete_when_no_subscriptions, 0, true)));
        steps.run("topic.invalid.replication clusters", () -> all.setReplicationClusters(t, List.of("nowhere")).get());
    }
}
