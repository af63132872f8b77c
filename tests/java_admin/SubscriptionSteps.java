import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.Topics;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.impl.MessageIdImpl;

/** Subscriptions of a topic with 5 messages, and of a partitioned one with 2 partitions of 2 messages. */
final class SubscriptionSteps {
    // Pulsar refuses to expire messages while it does so already.
    private static final long EXPIRY_MS = 1000;

    static void run(Steps steps) throws Exception {
        Topics topics = steps.admin.topics();
        String plain = steps.topic("subscribed");
        String parts = steps.topic("subscribed-parts");
        topics.createNonPartitionedTopic(plain);
        topics.createPartitionedTopic(parts, 2);
        MessageIdImpl first = null;
        try (Producer<byte[]> producer = steps.client.newProducer().topic(plain).enableBatching(false).producerName("steps").create()) {
            for (int number = 0; number < 5; number++) {
                MessageId id = producer.newMessage().value(("m" + number).getBytes()).key("k" + number).property("number", "" + number).eventTime(1000 + number).send();
                first = first == null ? (MessageIdImpl) id : first;
            }
        }
        for (int partition = 0; partition < 2; partition++) {
            try (Producer<byte[]> producer = steps.client.newProducer().topic(parts + "-partition-" + partition).enableBatching(false).producerName("steps").create()) {
                producer.send("a".getBytes());
                producer.send("b".getBytes());
            }
        }
        cursors(steps, topics, "subscriptions.", plain, first.getLedgerId());
        reading(steps, topics, plain, first.getLedgerId());
        partitions(steps, topics, parts);
        missing(steps, topics);
        ending(steps, topics, plain, parts);
    }

    private static void cursors(Steps steps, Topics topics, String of, String topic, long ledger) {
        steps.get(of + "list.none", () -> topics.getSubscriptions(topic));
        steps.run(of + "create.earliest", () -> topics.createSubscription(topic, "earliest", MessageId.earliest));
        steps.run(of + "create.latest", () -> topics.createSubscription(topic, "latest", MessageId.latest));
        steps.run(of + "create.id", () -> topics.createSubscription(topic, "id", new MessageIdImpl(ledger, 2, -1)));
        steps.run(of + "create.again", () -> topics.createSubscription(topic, "earliest", MessageId.earliest));
        steps.run(of + "create.properties", () -> topics.createSubscription(topic, "properties", MessageId.earliest, false, Map.of("key", "value")));
        steps.get(of + "list", () -> topics.getSubscriptions(topic).stream().sorted().toList());
        steps.policy(of + "properties", () -> topics.getSubscriptionProperties(topic, "properties"), () -> topics.updateSubscriptionProperties(topic, "properties", Map.of("other", "value")), null);
        backlog(steps, topics, of + "backlog.created", topic);
        steps.run(of + "skip", () -> topics.skipMessages(topic, "earliest", 2));
        backlog(steps, topics, of + "backlog.skipped", topic);
        steps.run(of + "skip.many", () -> topics.skipMessages(topic, "earliest", 100));
        steps.run(of + "reset.time", () -> topics.resetCursor(topic, "latest", 1000));
        steps.run(of + "reset.id", () -> topics.resetCursor(topic, "earliest", new MessageIdImpl(ledger, 1, -1)));
        steps.run(of + "reset.id.excluded", () -> topics.resetCursor(topic, "id", new MessageIdImpl(ledger, 1, -1), true));
        backlog(steps, topics, of + "backlog.reset", topic);
        steps.run(of + "reset.beyond", () -> topics.resetCursor(topic, "earliest", new MessageIdImpl(ledger, 100, -1)));
        steps.run(of + "reset.earliest", () -> topics.resetCursor(topic, "earliest", MessageId.earliest));
        steps.run(of + "skip all", () -> topics.skipAllMessages(topic, "earliest"));
        steps.run(of + "expire.none", () -> topics.expireMessages(topic, "properties", 1000));
        Steps.pause(EXPIRY_MS);
        steps.run(of + "expire.id", () -> topics.expireMessages(topic, "properties", new MessageIdImpl(ledger, 1, -1), false));
        Steps.pause(EXPIRY_MS);
        steps.run(of + "expire all.none", () -> topics.expireMessagesForAllSubscriptions(topic, 1000));
        backlog(steps, topics, of + "backlog.expired", topic);
        steps.get(of + "analyze", () -> topics.analyzeSubscriptionBacklog(topic, "latest", Optional.empty()));
        steps.get(of + "analyze.from", () -> topics.analyzeSubscriptionBacklog(topic, "latest", Optional.of(new MessageIdImpl(ledger, 2, -1))));
        steps.get(of + "replicated", () -> topics.getReplicatedSubscriptionStatus(topic, "latest"));
        for (String missing : List.of("missing")) {
            steps.run(of + "missing.skip", () -> topics.skipMessages(topic, missing, 1));
            steps.run(of + "missing.skip all", () -> topics.skipAllMessages(topic, missing));
            steps.run(of + "missing.reset.time", () -> topics.resetCursor(topic, missing, 1000));
            steps.run(of + "missing.reset.id", () -> topics.resetCursor(topic, missing, new MessageIdImpl(ledger, 1, -1)));
            steps.run(of + "missing.expire", () -> topics.expireMessages(topic, missing, 1000));
            steps.get(of + "missing.peek", () -> topics.peekMessages(topic, missing, 1));
            steps.get(of + "missing.analyze", () -> topics.analyzeSubscriptionBacklog(topic, missing, Optional.empty()));
            steps.get(of + "missing.properties", () -> topics.getSubscriptionProperties(topic, missing));
            steps.run(of + "missing.delete", () -> topics.deleteSubscription(topic, missing));
        }
        steps.run(of + "delete", () -> topics.deleteSubscription(topic, "id"));
        steps.run(of + "delete.force", () -> topics.deleteSubscription(topic, "properties", true));
        steps.get(of + "list.deleted", () -> topics.getSubscriptions(topic).stream().sorted().toList());
    }

    private static void backlog(Steps steps, Topics topics, String name, String topic) {
        // Cursors move asynchronously when messages expire.
        Steps.pause(200);
        steps.get(name, () -> {
            Map<String, Object> backlogs = new java.util.TreeMap<>();
            topics.getStats(topic, true).getSubscriptions().forEach((subscription, stats) -> backlogs.put(subscription, stats.getMsgBacklog()));
            return backlogs;
        });
    }

    private static void reading(Steps steps, Topics topics, String topic, long ledger) {
        steps.get("messages.peek", () -> topics.peekMessages(topic, "latest", 2));
        steps.get("messages.peek.many", () -> topics.peekMessages(topic, "latest", 100));
        steps.get("messages.id", () -> topics.getMessagesById(topic, ledger, 1));
        steps.get("messages.id.beyond", () -> topics.getMessagesById(topic, ledger, 100));
        steps.get("messages.id.missing ledger", () -> topics.getMessagesById(topic, ledger + 100000, 0));
        steps.get("messages.examine.earliest", () -> topics.examineMessage(topic, "earliest", 2));
        steps.get("messages.examine.latest", () -> topics.examineMessage(topic, "latest", 1));
        steps.get("messages.examine.beyond", () -> topics.examineMessage(topic, "earliest", 100));
        steps.get("messages.examine.bad", () -> topics.examineMessage(topic, "middle", 1));
        steps.get("messages.last", () -> topics.getLastMessageId(topic));
        steps.get("messages.by time", () -> topics.getMessageIdByTimestamp(topic, 1));
        steps.get("messages.by future time", () -> topics.getMessageIdByTimestamp(topic, System.currentTimeMillis() + 1000000));
        steps.get("messages.backlog size", () -> topics.getBacklogSizeByMessageId(topic, new MessageIdImpl(ledger, 4, -1)));
    }

    private static void partitions(Steps steps, Topics topics, String topic) {
        steps.run("parts.create", () -> topics.createSubscription(topic, "s", MessageId.earliest));
        steps.run("parts.create.again", () -> topics.createSubscription(topic, "s", MessageId.earliest));
        steps.get("parts.list", () -> topics.getSubscriptions(topic));
        steps.get("parts.list.partition", () -> topics.getSubscriptions(topic + "-partition-1"));
        steps.run("parts.skip", () -> topics.skipMessages(topic, "s", 1));
        steps.run("parts.skip.partition", () -> topics.skipMessages(topic + "-partition-0", "s", 1));
        steps.run("parts.reset.time", () -> topics.resetCursor(topic, "s", 1000));
        steps.run("parts.reset.id", () -> topics.resetCursor(topic, "s", MessageId.earliest));
        steps.run("parts.skip all", () -> topics.skipAllMessages(topic, "s"));
        steps.run("parts.expire", () -> topics.expireMessages(topic, "s", 1000));
        Steps.pause(EXPIRY_MS);
        steps.run("parts.expire all", () -> topics.expireMessagesForAllSubscriptions(topic, 1000));
        steps.get("parts.peek", () -> topics.peekMessages(topic, "s", 1));
        steps.get("parts.analyze", () -> topics.analyzeSubscriptionBacklog(topic, "s", Optional.empty()));
        steps.policy("parts.properties", () -> topics.getSubscriptionProperties(topic, "s"), () -> topics.updateSubscriptionProperties(topic, "s", Map.of("k", "v")), null);
        steps.get("parts.last", () -> topics.getLastMessageId(topic));
        steps.get("parts.examine", () -> topics.examineMessage(topic, "earliest", 1));
        steps.run("parts.missing.skip all", () -> topics.skipAllMessages(topic, "missing"));
        steps.run("parts.missing.delete", () -> topics.deleteSubscription(topic, "missing"));
        steps.run("parts.delete", () -> topics.deleteSubscription(topic, "s"));
        steps.get("parts.list.deleted", () -> topics.getSubscriptions(topic));
    }

    private static void missing(Steps steps, Topics topics) {
        String topic = steps.topic("missing");
        steps.get("missing.subscriptions", () -> topics.getSubscriptions(topic));
        steps.run("missing.skip", () -> topics.skipMessages(topic, "s", 1));
        steps.run("missing.skip all", () -> topics.skipAllMessages(topic, "s"));
        steps.run("missing.reset.time", () -> topics.resetCursor(topic, "s", 1000));
        steps.run("missing.expire", () -> topics.expireMessages(topic, "s", 1000));
        steps.run("missing.delete subscription", () -> topics.deleteSubscription(topic, "s"));
        steps.get("missing.peek", () -> topics.peekMessages(topic, "s", 1));
        steps.get("missing.stats", () -> topics.getStats(topic));
        steps.get("missing.internal stats", () -> topics.getInternalStats(topic));
        steps.get("missing.partitioned stats", () -> topics.getPartitionedStats(topic, true));
        steps.get("missing.partitioned internal stats", () -> topics.getPartitionedInternalStats(topic));
        steps.get("missing.last", () -> topics.getLastMessageId(topic));
        steps.get("missing.examine", () -> topics.examineMessage(topic, "earliest", 1));
        steps.get("missing.message id", () -> topics.getMessageIdByTimestamp(topic, 1));
        steps.run("missing.unload", () -> topics.unload(topic));
        steps.run("missing.truncate", () -> topics.truncate(topic));
        steps.run("missing.trim", () -> topics.trimTopic(topic));
        steps.get("missing.terminate", () -> topics.terminateTopic(topic));
        steps.get("missing.terminate.partitioned", () -> topics.terminatePartitionedTopic(topic));
        steps.run("missing.compact", () -> topics.triggerCompaction(topic));
        steps.get("missing.compaction", () -> topics.compactionStatus(topic));
        // It creates the topic, since topics may be created by use.
        steps.run("missing.create subscription", () -> topics.createSubscription(steps.topic("created"), "s", MessageId.earliest));
        steps.get("missing.create subscription.list", () -> topics.getSubscriptions(steps.topic("created")));
        steps.run("missing.create subscription.delete", () -> topics.delete(steps.topic("created"), true));
    }

    private static Object compacted(Topics topics, String topic) throws Exception {
        for (int attempt = 0; attempt < 100; attempt++) {
            LongRunningProcessStatus status = topics.compactionStatus(topic);
            if (status.status != LongRunningProcessStatus.Status.RUNNING) {
                return status;
            }
            Steps.pause(100);
        }
        return "still running";
    }

    private static void ending(Steps steps, Topics topics, String plain, String parts) {
        steps.run("ending.unload", () -> topics.unload(plain));
        steps.run("ending.unload.partitioned", () -> topics.unload(parts));
        steps.get("ending.compaction", () -> topics.compactionStatus(plain));
        steps.run("ending.compact", () -> topics.triggerCompaction(plain));
        steps.get("ending.compacted", () -> compacted(topics, plain));
        steps.get("ending.offload", () -> topics.offloadStatus(plain));
        steps.run("ending.trim", () -> topics.trimTopic(plain));
        steps.run("ending.truncate", () -> topics.truncate(plain));
        steps.run("ending.truncate.partitioned", () -> topics.truncate(parts));
        steps.get("ending.terminate", () -> topics.terminateTopic(plain));
        steps.get("ending.terminate.again", () -> topics.terminateTopic(plain));
        steps.get("ending.terminate.plain as partitioned", () -> topics.terminatePartitionedTopic(plain));
        steps.get("ending.terminate.partitioned as plain", () -> topics.terminateTopic(parts));
        steps.get("ending.terminate.partitioned", () -> topics.terminatePartitionedTopic(parts));
        steps.run("ending.delete", () -> topics.delete(plain));
        steps.run("ending.delete.force", () -> topics.delete(plain, true));
        steps.run("ending.delete.partitioned", () -> topics.deletePartitionedTopic(parts));
    }
}
