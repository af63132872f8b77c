import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.SubscriptionType;

final class Acknowledging {
    @Check
    static void oneByOne(Scene scene) throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Shared, SubscriptionType.Failover)) {
            String topic = scene.topic();
            Scene.send(scene.singly(topic).create(), 0, 10);
            Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscriptionType(type).subscribe();
            List<Message<byte[]>> messages = Scene.receive(consumer, 10);
            for (int number : new int[] {0, 1, 5, 9}) {
                consumer.acknowledge(messages.get(number));
            }
            consumer.close();
            Consumer<byte[]> again = scene.subscribing(topic, "s").subscriptionType(type).subscribe();
            Scene.equal(List.of(2, 3, 4, 6, 7, 8), Scene.numbers(Scene.receive(again, 6)));
            Scene.nothingComes(again);
        }
    }

    @Check
    static void upToOne(Scene scene) throws Exception {
        String topic = scene.topic();
        Scene.send(scene.batches(topic, 4).create(), 0, 20);
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        List<Message<byte[]>> messages = Scene.receive(consumer, 20);
        consumer.acknowledgeCumulative(messages.get(11));
        consumer.close();
        Consumer<byte[]> again = scene.subscribing(topic, "s").subscribe();
        Scene.equal(Scene.range(12, 20), Scene.numbers(Scene.receive(again, 8)));
        again.acknowledgeCumulative(messages.get(13)); // within a batch
        again.close();
        Scene.equal(Scene.range(14, 20), Scene.numbers(Scene.receive(scene.subscribing(topic, "s").subscribe(), 6)));
    }

    @Check
    static void withReceipts(Scene scene) throws Exception {
        for (int groupMs : new int[] {0, 20}) {
            String topic = scene.topic();
            ConsumerBuilder<byte[]> subscribing = scene.subscribing(topic, "s").isAckReceiptEnabled(true)
                    .acknowledgmentGroupTime(groupMs, TimeUnit.MILLISECONDS);
            Scene.send(scene.singly(topic).create(), 0, 10);
            Consumer<byte[]> consumer = subscribing.subscribe();
            List<Message<byte[]>> messages = Scene.receive(consumer, 10);
            consumer.acknowledgeAsync(messages.get(5)).get(Scene.LONG_S, TimeUnit.SECONDS);
            List<MessageId> two = List.of(messages.get(7).getMessageId(), messages.get(8).getMessageId());
            consumer.acknowledgeAsync(two).get(Scene.LONG_S, TimeUnit.SECONDS);
            consumer.acknowledgeCumulativeAsync(messages.get(2)).get(Scene.LONG_S, TimeUnit.SECONDS);
            consumer.close();
            Scene.equal(List.of(3, 4, 6, 9), Scene.numbers(Scene.receive(subscribing.subscribe(), 4)));
        }
    }

    @Check
    static void partsOfBatches(Scene scene) throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Shared)) {
            String topic = scene.topic();
            ConsumerBuilder<byte[]> subscribing = scene.subscribing(topic, "s").subscriptionType(type)
                    .receiverQueueSize(20).isAckReceiptEnabled(true).enableBatchIndexAcknowledgment(true);
            Scene.send(scene.batches(topic, 100).create(), 0, 300);
            Consumer<byte[]> consumer = subscribing.subscribe();
            List<Message<byte[]>> messages = Scene.receive(consumer, 300);
            List<CompletableFuture<Void>> acknowledged = new ArrayList<>();
            for (int number = 0; number < 300; number++) {
                if (number % 3 == 0 || number / 100 == 1) {
                    acknowledged.add(consumer.acknowledgeAsync(messages.get(number)));
                }
            }
            CompletableFuture.allOf(acknowledged.toArray(CompletableFuture[]::new)).get(Scene.LONG_S, TimeUnit.SECONDS);
            consumer.close();
            List<Integer> left = Scene.range(0, 300).stream().filter(number -> number % 3 != 0 && number / 100 != 1).toList();
            Consumer<byte[]> again = subscribing.subscribe();
            Scene.equal(left, Scene.numbers(Scene.receive(again, left.size())));
            Scene.nothingComes(again);
            again.redeliverUnacknowledgedMessages();
            Scene.equal(left, Scene.numbers(Scene.receive(again, left.size())));
            if (type == SubscriptionType.Exclusive) {
                again.acknowledgeCumulativeAsync(messages.get(249)).get(Scene.LONG_S, TimeUnit.SECONDS);
                again.close();
                List<Integer> rest = left.stream().filter(number -> number > 249).toList();
                Scene.equal(rest, Scene.numbers(Scene.receive(subscribing.subscribe(), rest.size())));
            }
        }
    }

    @Check
    static void partsOfBatchesWhichDoNotCountUnlessAskedFor(Scene scene) throws Exception {
        String topic = scene.topic();
        Scene.send(scene.batches(topic, 10).create(), 0, 20);
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").enableBatchIndexAcknowledgment(false).subscribe();
        List<Message<byte[]>> messages = Scene.receive(consumer, 20);
        for (int number = 0; number < 15; number++) {
            consumer.acknowledge(messages.get(number));
        }
        consumer.close();
        Consumer<byte[]> again = scene.subscribing(topic, "s").subscribe();
        Scene.equal(Scene.range(10, 20), Scene.numbers(Scene.receive(again, 10)));
    }
}
