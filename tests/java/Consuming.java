import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatchReceivePolicy;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

final class Consuming {
    @Check
    static void alone(Scene scene) throws Exception {
        for (String topic : List.of(scene.topic(), scene.partitioned(2))) {
            Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
            Scene.refused(PulsarClientException.ConsumerBusyException.class, () -> scene.subscribing(topic, "s").subscribe());
            Scene.refused(PulsarClientException.ConsumerBusyException.class,
                    () -> scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe());
            Scene.send(scene.singly(topic).create(), 0, 10);
            Scene.equal(Scene.range(0, 10), Scene.sorted(Scene.numbers(Scene.receive(consumer, 10))));
            consumer.close();
            scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe().close();
        }
    }

    @Check
    static void shared(Scene scene) throws Exception {
        String topic = scene.topic();
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            consumers.add(scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared)
                    .consumerName("c" + number).receiverQueueSize(10).subscribe());
        }
        Scene.send(scene.singly(topic).create(), 0, 90);
        List<Integer> numbers = new ArrayList<>();
        Set<Consumer<byte[]>> served = new HashSet<>();
        while (numbers.size() < 90) {
            for (Consumer<byte[]> consumer : consumers) {
                Message<byte[]> message = consumer.receive(50, TimeUnit.MILLISECONDS);
                if (message != null) {
                    numbers.add(Integer.valueOf(Scene.text(message)));
                    served.add(consumer);
                    consumer.acknowledge(message);
                }
            }
        }
        Scene.equal(Scene.range(0, 90), Scene.sorted(numbers));
        Scene.equal(3, served.size());
    }

    private static final class Told implements ConsumerEventListener {
        final BlockingQueue<String> events = new LinkedBlockingQueue<>();

        @Override
        public void becameActive(Consumer<?> consumer, int partition) {
            events.add("active " + partition);
        }

        @Override
        public void becameInactive(Consumer<?> consumer, int partition) {
            events.add("inactive " + partition);
        }

        String next() throws Exception {
            return events.poll(Scene.LONG_S, TimeUnit.SECONDS);
        }
    }

    @Check
    static void oneActiveAtATime(Scene scene) throws Exception {
        String topic = scene.topic();
        Told firstTold = new Told();
        Told secondTold = new Told();
        Consumer<byte[]> first = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Failover)
                .consumerName("a").consumerEventListener(firstTold).subscribe();
        Scene.equal("active -1", firstTold.next());
        Consumer<byte[]> second = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Failover)
                .consumerName("b").consumerEventListener(secondTold).subscribe();
        Scene.equal("inactive -1", secondTold.next());
        Scene.send(scene.singly(topic).create(), 0, 10);
        List<Message<byte[]>> messages = Scene.receive(first, 6);
        Scene.equal(Scene.range(0, 6), Scene.numbers(messages));
        Scene.nothingComes(second);
        first.acknowledge(messages.get(1));
        first.acknowledgeCumulative(messages.get(3));
        first.close();
        Scene.equal("active -1", secondTold.next());
        Scene.equal(Scene.range(4, 10), Scene.numbers(Scene.receive(second, 6)));
        Told thirdTold = new Told();
        Consumer<byte[]> third = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Failover)
                .consumerName("c").priorityLevel(0).consumerEventListener(thirdTold).subscribe();
        Scene.equal("inactive -1", thirdTold.next());
        second.close();
        Scene.equal("active -1", thirdTold.next());
        Scene.equal(Scene.range(4, 10), Scene.numbers(Scene.receive(third, 6)));
    }

    @Check
    static void oneActiveForEachPartition(Scene scene) throws Exception {
        String topic = scene.partitioned(2);
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (String name : List.of("a", "b")) {
            consumers.add(scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Failover).consumerName(name).subscribe());
        }
        Producer<byte[]> producer = scene.singly(topic).create();
        for (int number = 0; ; number += 2) {
            Scene.send(producer, number, number + 2);
            Message<byte[]> of0 = consumers.get(0).receive(100, TimeUnit.MILLISECONDS);
            Message<byte[]> of1 = consumers.get(1).receive(100, TimeUnit.MILLISECONDS);
            if (of0 != null && of1 != null) {
                Scene.that(Scene.id(of0).getPartitionIndex() != Scene.id(of1).getPartitionIndex() || number > 0, "both");
                return;
            }
        }
    }

    @Check
    static void byEveryWayToReceive(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.batches(topic, 7).create();
        Scene.send(producer, 0, 28);
        BlockingQueue<Integer> heard = new LinkedBlockingQueue<>();
        scene.subscribing(topic, "listener").messageListener((consumer, message) -> {
            heard.add(Integer.valueOf(Scene.text(message)));
            consumer.acknowledgeAsync(message);
        }).subscribe();
        Consumer<byte[]> batches = scene.subscribing(topic, "batches")
                .batchReceivePolicy(BatchReceivePolicy.builder().maxNumMessages(28).timeout(20, TimeUnit.SECONDS).build())
                .subscribe();
        List<Integer> numbers = new ArrayList<>();
        batches.batchReceive().forEach(message -> numbers.add(Integer.valueOf(Scene.text(message))));
        Scene.equal(Scene.range(0, 28), numbers);
        Consumer<byte[]> later = scene.subscribing(topic, "later").subscribe();
        for (int number = 0; number < 28; number++) {
            CompletableFuture<Message<byte[]>> one = later.receiveAsync();
            Scene.equal(Integer.toString(number), Scene.text(one.get(Scene.LONG_S, TimeUnit.SECONDS)));
        }
        for (int number = 0; number < 28; number++) {
            Scene.equal(number, heard.poll(Scene.LONG_S, TimeUnit.SECONDS));
        }
    }

    @Check
    static void withQueuesOfEverySize(Scene scene) throws Exception {
        String topic = scene.topic();
        Scene.send(scene.singly(topic).create(), 0, 20);
        for (int size : new int[] {0, 1, 2, 7}) {
            Consumer<byte[]> consumer = scene.subscribing(topic, "s" + size).receiverQueueSize(size).subscribe();
            for (int number = 0; number < 20; number++) {
                Message<byte[]> message = size == 0 ? consumer.receive() : Scene.receive(consumer);
                Scene.equal(Integer.toString(number), Scene.text(message));
                consumer.acknowledge(message);
            }
        }
        Scene.send(scene.batches(topic, 10).create(), 20, 50);
        for (int size : new int[] {1, 7}) {
            Consumer<byte[]> consumer = scene.subscribing(topic, "b" + size).receiverQueueSize(size).subscribe();
            Scene.equal(Scene.range(0, 50), Scene.numbers(Scene.receive(consumer, 50)));
        }
    }

    @Check
    static void nothingWhilePaused(Scene scene) throws Exception {
        String topic = scene.topic();
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").receiverQueueSize(2).startPaused(true).subscribe();
        Producer<byte[]> producer = scene.singly(topic).create();
        Scene.send(producer, 0, 10);
        Scene.nothingComes(consumer);
        consumer.resume();
        Scene.equal(Scene.range(0, 10), Scene.numbers(Scene.receive(consumer, 10)));
        consumer.pause();
        Scene.send(producer, 10, 20);
        List<Integer> numbers = new ArrayList<>();
        for (Message<byte[]> one = consumer.receive(Scene.MOMENT_MS, TimeUnit.MILLISECONDS); one != null; one = consumer.receive(
                Scene.MOMENT_MS, TimeUnit.MILLISECONDS)) {
            numbers.add(Integer.valueOf(Scene.text(one)));
        }
        Scene.that(numbers.size() <= 2, numbers);
        consumer.resume();
        Scene.receive(consumer, 10 - numbers.size()).forEach(one -> numbers.add(Integer.valueOf(Scene.text(one))));
        Scene.equal(Scene.range(10, 20), numbers);
    }

    @Check
    static void fromManyTopics(Scene scene) throws Exception {
        List<String> topics = List.of(scene.topic(), scene.partitioned(2), scene.topic());
        Consumer<byte[]> consumer = scene.client.newConsumer().topics(topics).subscriptionName("s").subscribe();
        for (int at = 0; at < 3; at++) {
            Scene.send(scene.batches(topics.get(at), 5).create(), at * 10, at * 10 + 10);
        }
        List<Message<byte[]>> messages = Scene.receive(consumer, 30);
        Scene.equal(Scene.range(0, 30), Scene.sorted(Scene.numbers(messages)));
        for (Message<byte[]> message : messages) {
            consumer.acknowledge(message);
        }
        consumer.close();
        Scene.nothingComes(scene.client.newConsumer().topics(topics).subscriptionName("s").subscribe());
    }

    @Check
    static void fromTheLatestOnAndUnderPropertiesOfItsOwn(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.singly(topic).create();
        Scene.send(producer, 0, 5);
        Consumer<byte[]> consumer = scene.client.newConsumer().topic(topic).subscriptionName("s").consumerName("c")
                .property("of", "the consumer").subscriptionProperties(Map.of("of", "the subscription"))
                .subscriptionInitialPosition(SubscriptionInitialPosition.Latest).readCompacted(true)
                .replicateSubscriptionState(true).subscribe();
        Scene.send(producer, 5, 10);
        Scene.equal(Scene.range(5, 10), Scene.numbers(Scene.receive(consumer, 5)));
        Scene.equal("c", consumer.getConsumerName());
        Scene.that(consumer.isConnected(), "it is not connected");
    }

    @Check
    static void noMoreOnceUnsubscribed(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.singly(topic).create();
        Consumer<byte[]> one = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe();
        Consumer<byte[]> two = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe();
        Scene.refused(PulsarClientException.class, () -> one.unsubscribeAsync().get());
        two.close();
        one.unsubscribe();
        Scene.equal("", scene.ask("subscriptions", topic));
        Scene.send(producer, 0, 1);
        Consumer<byte[]> again = scene.client.newConsumer().topic(topic).subscriptionName("s").subscribe();
        Scene.send(producer, 1, 2);
        Scene.equal("1", Scene.text(Scene.receive(again)));
        again.close();
        Consumer<byte[]> three = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe();
        Consumer<byte[]> four = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared).subscribe();
        Scene.send(producer, 2, 3);
        three.unsubscribe(true);
        // It subscribes again, which makes the subscription anew, with all that there is.
        Scene.equal(Scene.range(0, 3), Scene.distinct(Scene.numbers(untilThere(four, 3))));
    }

    /** Until so many different ones have come. */
    private static List<Message<byte[]>> untilThere(Consumer<byte[]> consumer, int messages) throws Exception {
        List<Message<byte[]>> received = new ArrayList<>();
        while (Scene.distinct(Scene.numbers(received)).size() < messages) {
            received.add(Scene.receive(consumer));
        }
        return received;
    }
}
