import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionType;

final class Redelivery {
    @Check
    static void ofWhatWasRefused(Scene scene) throws Exception {
        String topic = scene.topic();
        Scene.send(scene.singly(topic).create(), 0, 10);
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS).subscribe();
        for (Message<byte[]> message : Scene.receive(consumer, 10)) {
            Scene.equal(0, message.getRedeliveryCount());
            if (Integer.parseInt(Scene.text(message)) % 2 == 0) {
                consumer.acknowledge(message);
            } else {
                consumer.negativeAcknowledge(message);
            }
        }
        List<Message<byte[]>> again = Scene.receive(consumer, 5);
        Scene.equal(List.of(1, 3, 5, 7, 9), Scene.sorted(Scene.numbers(again)));
        for (Message<byte[]> message : again) {
            Scene.equal(1, message.getRedeliveryCount());
            consumer.acknowledge(message);
        }
        Scene.nothingComes(consumer);
    }

    @Check
    static void ofWhatWasRefusedInOrder(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.batches(topic, 3).create();
        Scene.send(producer, 0, 30);
        Consumer<byte[]> consumer = scene.subscribing(topic, "s")
                .negativeAckRedeliveryDelay(20, TimeUnit.MILLISECONDS).subscribe();
        List<Message<byte[]>> messages = Scene.receive(consumer, 9);
        consumer.acknowledge(messages.get(0));
        consumer.acknowledge(messages.get(1));
        consumer.acknowledge(messages.get(2));
        consumer.negativeAcknowledge(messages.get(7));
        int next = 9;
        for (Message<byte[]> message = Scene.receive(consumer); ; message = Scene.receive(consumer)) {
            int number = Integer.parseInt(Scene.text(message));
            if (number == 3) {
                break; // everything again, from the first that is not acknowledged
            }
            Scene.equal(next++, number);
        }
        Scene.equal(Scene.range(4, 30), Scene.numbers(Scene.receive(consumer, 26)));
    }

    @Check
    static void ofEverythingUnderANewEpoch(Scene scene) throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Failover)) {
            String topic = scene.topic();
            Producer<byte[]> producer = scene.singly(topic).create();
            Scene.send(producer, 0, 200);
            Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscriptionType(type).receiverQueueSize(50)
                    .isAckReceiptEnabled(true).subscribe();
            for (int round = 0; round < 5; round++) {
                List<Message<byte[]>> messages = Scene.receive(consumer, 20);
                Scene.equal(Scene.range(10 * round, 10 * round + 20), Scene.numbers(messages));
                List<MessageId> half = messages.subList(0, 10).stream().map(Message::getMessageId).toList();
                consumer.acknowledgeAsync(half).get(Scene.LONG_S, TimeUnit.SECONDS);
                consumer.redeliverUnacknowledgedMessages();
            }
            Scene.equal(Scene.range(50, 200), Scene.numbers(Scene.receive(consumer, 150)));
            Scene.nothingComes(consumer);
            Scene.send(producer, 200, 300);
            Scene.equal(Scene.range(200, 300), Scene.numbers(Scene.receive(consumer, 100)));
        }
    }

    @Check
    static void ofWhatIsStillOnItsWay(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.singly(topic).maxPendingMessages(0).create();
        for (int number = 0; number < 900; number++) {
            producer.sendAsync(Scene.bytes(String.format("%04000d", number)));
        }
        producer.flush();
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").receiverQueueSize(900).subscribe();
        for (int round = 0; round < 3; round++) {
            fromTheFirst(consumer, 2);
            consumer.redeliverUnacknowledgedMessages();
        }
        fromTheFirst(consumer, 900);
    }

    /** One of before may still come: that which the client was just putting into its queue, past its look at the epoch. */
    private static void fromTheFirst(Consumer<byte[]> consumer, int messages) throws Exception {
        int first = Integer.parseInt(Scene.text(Scene.receive(consumer)));
        int from = first == 0 ? 1 : 0;
        Scene.equal(Scene.range(from, messages), Scene.numbers(Scene.receive(consumer, messages - from)));
    }

    @Check
    static void ofWhatWasNotAcknowledgedInTime(Scene scene) throws Exception {
        String topic = scene.topic();
        Scene.send(scene.singly(topic).create(), 0, 6);
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared)
                .ackTimeout(1, TimeUnit.SECONDS).ackTimeoutTickTime(100, TimeUnit.MILLISECONDS).subscribe();
        List<Message<byte[]>> messages = Scene.receive(consumer, 6);
        for (int number = 0; number < 3; number++) {
            consumer.acknowledge(messages.get(number));
        }
        List<Integer> again = Scene.numbers(Scene.receive(consumer, 3));
        Scene.equal(List.of(3, 4, 5), Scene.sorted(again));
    }

    @Check
    static void toTheDeadLetters(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.singly(topic).create();
        producer.newMessage().key("k").property("p", "v").value(Scene.bytes("bad")).send();
        producer.send(Scene.bytes("good"));
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(10, TimeUnit.MILLISECONDS)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).initialSubscriptionName("first").build())
                .subscribe();
        List<String> got = new ArrayList<>();
        while (got.size() < 4) {
            Message<byte[]> message = Scene.receive(consumer);
            got.add(Scene.text(message) + message.getRedeliveryCount());
            if (Scene.text(message).equals("good")) {
                consumer.acknowledge(message);
            } else {
                consumer.negativeAcknowledge(message);
            }
        }
        Scene.equal(List.of("bad0", "bad1", "bad2", "good0"), got.stream().sorted().toList());
        Scene.until(() -> scene.ask("subscriptions", topic + "-s-DLQ").equals("first"));
        Consumer<byte[]> dead = scene.client.newConsumer().topic(topic + "-s-DLQ").subscriptionName("first").subscribe();
        Message<byte[]> letter = Scene.receive(dead);
        Scene.equal("bad", Scene.text(letter));
        Scene.equal("k", letter.getKey());
        Scene.equal("v", letter.getProperty("p"));
        Scene.equal(topic, letter.getProperty("REAL_TOPIC"));
        Scene.nothingComes(consumer);
    }

    @Check
    static void byTheRetryTopic(Scene scene) throws Exception {
        String topic = scene.topic();
        Scene.send(scene.singly(topic).create(), 0, 1);
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared).enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).build()).subscribe();
        Consumer<byte[]> dead = scene.subscribing(topic + "-s-DLQ", "s").subscribe();
        for (int time = 0; time < 3; time++) {
            Message<byte[]> message = Scene.receive(consumer);
            Scene.equal("0", Scene.text(message));
            Scene.equal(time == 0 ? null : Integer.toString(time), message.getProperty("RECONSUMETIMES"));
            consumer.reconsumeLater(message, Map.of("why", "later"), 0, TimeUnit.MILLISECONDS);
        }
        Message<byte[]> letter = Scene.receive(dead);
        Scene.equal(topic, letter.getProperty("REAL_TOPIC"));
        Scene.equal("later", letter.getProperty("why"));
        Scene.nothingComes(consumer);
    }

    @Check
    static void lettersOfAnotherClient(Scene scene) throws Exception {
        String topic = scene.topic();
        MessageId id = scene.singly(topic).create().newMessage().key("k").value(Scene.bytes("bad")).send();
        Scene.equal("none", scene.ask("magnetar retries", topic));
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared).enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).build()).subscribe();
        Message<byte[]> letter = Scene.receive(consumer);
        Scene.equal("k", letter.getKey());
        Scene.equal("1", letter.getProperty("RECONSUMETIMES"));
        Scene.equal("Magnetar", letter.getProperty("by"));
        Scene.equal(topic, letter.getProperty("REAL_TOPIC"));
        Scene.equal(id.toString(), letter.getProperty("ORIGIN_MESSAGE_ID"));
        consumer.reconsumeLater(letter, 0, TimeUnit.MILLISECONDS);
        consumer.close();
        Scene.equal("2", scene.ask("magnetar retries", topic));
        Message<byte[]> dead = Scene.receive(scene.subscribing(topic + "-s-DLQ", "s").subscribe());
        Scene.equal("3", dead.getProperty("RECONSUMETIMES"));
        Scene.equal(id.toString(), dead.getProperty("ORIGIN_MESSAGE_ID"));
        Scene.equal("s", dead.getProperty("REAL_SUBSCRIPTION"));
    }

    @Check
    static void ofSomeOnly(Scene scene) throws Exception {
        String topic = scene.topic();
        Scene.send(scene.batches(topic, 5).create(), 0, 20);
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Shared)
                .enableBatchIndexAcknowledgment(true).negativeAckRedeliveryDelay(10, TimeUnit.MILLISECONDS).subscribe();
        List<Message<byte[]>> messages = Scene.receive(consumer, 20);
        List<MessageId> acknowledged = new ArrayList<>();
        for (int number : new int[] {5, 6, 7}) {
            acknowledged.add(messages.get(number).getMessageId());
        }
        consumer.acknowledge(acknowledged);
        consumer.negativeAcknowledge(messages.get(8));
        Message<byte[]> again = Scene.receive(consumer);
        List<Integer> came = new ArrayList<>(List.of(Integer.valueOf(Scene.text(again))));
        while (!came.contains(8)) {
            came.add(Integer.valueOf(Scene.text(Scene.receive(consumer))));
        }
        Scene.that(came.stream().noneMatch(number -> number < 8 || number > 9), came);
    }
}
