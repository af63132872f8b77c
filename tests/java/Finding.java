import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.RegexSubscriptionMode;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

final class Finding {
    @Check
    static void topicsOfAPattern(Scene scene) throws Exception {
        String topic = scene.topic();
        String partitioned = topic + "-partitioned";
        Scene.send(scene.singly(topic).create(), 0, 3);
        scene.ask("partitions", partitioned, 2);
        Scene.send(scene.singly(topic.replace("java", "no")).create(), 90, 93);
        Consumer<byte[]> consumer = scene.client.newConsumer().topicsPattern(Pattern.compile(topic + ".*"))
                .subscriptionName("s").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscriptionTopicsMode(RegexSubscriptionMode.PersistentOnly)
                .patternAutoDiscoveryPeriod(1, TimeUnit.HOURS).subscribe();
        Scene.equal(Scene.range(0, 3), Scene.numbers(Scene.receive(consumer, 3)));
        Scene.send(scene.singly(partitioned).create(), 3, 7);
        Scene.equal(Scene.range(3, 7), Scene.sorted(Scene.numbers(Scene.receive(consumer, 4))));
        // Nobody polls: what tells of these is the broker.
        Scene.send(scene.singly(topic + "-new").create(), 7, 10);
        Scene.equal(Scene.range(7, 10), Scene.numbers(Scene.receive(consumer, 3)));
        scene.ask("partitions", topic + "-new-partitioned", 2);
        Scene.send(scene.singly(topic + "-new-partitioned").create(), 10, 14);
        Scene.equal(Scene.range(10, 14), Scene.sorted(Scene.numbers(Scene.receive(consumer, 4))));
        Scene.equal("s", scene.ask("subscriptions", topic));
        consumer.unsubscribe();
        for (String one : List.of(topic, partitioned + "-partition-1", topic + "-new")) {
            Scene.equal("", scene.ask("subscriptions", one));
        }
    }

    @Check
    static void topicsOfAList(Scene scene) throws Exception {
        List<String> topics = List.of(scene.topic(), scene.partitioned(2));
        scene.client.newConsumer().topics(topics).subscriptionName("s").subscribe().unsubscribe();
        for (String one : List.of(topics.get(0), topics.get(1) + "-partition-0", topics.get(1) + "-partition-1")) {
            Scene.equal("", scene.ask("subscriptions", one));
        }
    }

    @Check
    static void topicsOfAPatternByAsking(Scene scene) throws Exception {
        String topic = scene.topic();
        Consumer<byte[]> consumer = scene.client.newConsumer().topicsPattern("public/default/" + topic.substring(28) + "-\\d")
                .subscriptionName("s").subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS).subscribe();
        Scene.send(scene.singly(topic + "-1").create(), 0, 3);
        Scene.equal(Scene.range(0, 3), Scene.sorted(Scene.numbers(Scene.receive(consumer, 3))));
        consumer.unsubscribe();
    }

    @Check
    static void howManyPartitions(Scene scene) throws Exception {
        String partitioned = scene.partitioned(3);
        List<String> partitions = scene.client.getPartitionsForTopic(partitioned, false).get();
        Scene.equal(List.of(partitioned + "-partition-0", partitioned + "-partition-1", partitioned + "-partition-2"), partitions);
        String made = scene.topic();
        scene.singly(made).create();
        Scene.equal(List.of(made), scene.client.getPartitionsForTopic(made, false).get());
        String missing = scene.topic();
        Scene.refused(PulsarClientException.class, () -> scene.client.getPartitionsForTopic(missing, false).get());
        Scene.equal("no", scene.ask("exists", missing));
    }

    @Check
    static void nothingUnderNamesThatNobodyHas(Scene scene) throws Exception {
        for (String name : List.of("persistent://nobody/default/t", "persistent://public/nobody/t")) {
            Scene.refused(PulsarClientException.class, () -> scene.singly(name).create());
            Scene.refused(PulsarClientException.class, () -> scene.subscribing(name, "s").subscribe());
        }
    }

    @Check
    static void withATokenThatNobodyAsksFor(Scene scene) throws Exception {
        PulsarClient client = scene.ownClient(builder -> builder.authentication(AuthenticationFactory.token("any")));
        String topic = scene.topic();
        Producer<byte[]> producer = client.newProducer().topic(topic).create();
        Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("s").subscribe();
        producer.send(Scene.bytes("0"));
        Message<byte[]> message = Scene.receive(consumer);
        Scene.equal("0", Scene.text(message));
        consumer.acknowledge(message);
    }

    @Check
    static void aBrokerThatAnswersAsLongAsNothingIsSaid(Scene scene) throws Exception {
        PulsarClient client = scene.ownClient(builder -> builder.keepAliveInterval(1, TimeUnit.SECONDS));
        String topic = scene.topic();
        Producer<byte[]> producer = client.newProducer().topic(topic).create();
        Thread.sleep(3500); // after two of them in vain the client would have closed the connection
        Scene.equal(0L, producer.getLastDisconnectedTimestamp());
        producer.send(Scene.bytes("0"));
    }
}
