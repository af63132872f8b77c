import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionType;

/** What a client has when its broker was killed and has started again. */
final class Recovering {
    private static final int BEFORE = 100;
    private static final int ALL = 300;

    @Check
    static void fromKill9(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.batches(topic, 10).batchingMaxPublishDelay(1, TimeUnit.MILLISECONDS).create();
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        send(producer, sent, BEFORE);
        CompletableFuture.allOf(sent.toArray(CompletableFuture[]::new)).get(Scene.LONG_S, TimeUnit.SECONDS);
        Consumer<byte[]> alone = subscribe(scene, topic, SubscriptionType.Exclusive);
        Consumer<byte[]> shared = subscribe(scene, topic, SubscriptionType.Shared);
        alone.acknowledgeCumulativeAsync(Scene.receive(alone, BEFORE).get(24)).get(Scene.LONG_S, TimeUnit.SECONDS);
        List<MessageId> even = Scene.receive(shared, BEFORE).stream()
                .filter(message -> Integer.parseInt(Scene.text(message)) % 2 == 0).map(Message::getMessageId).toList();
        shared.acknowledgeAsync(even).get(Scene.LONG_S, TimeUnit.SECONDS);
        Reader<byte[]> reader = scene.client.newReader().topic(topic).startMessageId(MessageId.earliest).create();
        for (int number = 0; number < 35; number++) {
            Scene.equal(Integer.toString(number), Scene.text(reader.readNext(Scene.LONG_S, TimeUnit.SECONDS)));
        }
        send(producer, sent, ALL);
        scene.ask("kill and start");
        CompletableFuture.allOf(sent.toArray(CompletableFuture[]::new)).get(Scene.LONG_S, TimeUnit.SECONDS);
        // What waited in the client when the broker was killed comes before what is delivered again.
        List<Integer> ofAlone = firstTimes(alone, ALL - 25);
        Scene.equal(Scene.range(25, ALL), Scene.sorted(ofAlone));
        Scene.equal(Scene.range(25, BEFORE), ofAlone.stream().filter(number -> number < BEFORE).toList());
        Scene.equal(Scene.range(BEFORE, ALL), ofAlone.stream().filter(number -> number >= BEFORE).toList());
        Set<Integer> ofShared = new TreeSet<>(firstTimes(shared, ALL - BEFORE / 2));
        Scene.that(ofShared.stream().noneMatch(number -> number < BEFORE && number % 2 == 0), ofShared);
        int next = 35;
        while (next < ALL) {
            int read = Integer.parseInt(Scene.text(reader.readNext(Scene.LONG_S, TimeUnit.SECONDS)));
            Scene.that(read <= next, "after " + (next - 1) + " comes " + read);
            next = Math.max(next, read + 1);
        }
    }

    private static void send(Producer<byte[]> producer, List<CompletableFuture<MessageId>> sent, int to) {
        while (sent.size() < to) {
            sent.add(producer.sendAsync(Scene.bytes(Integer.toString(sent.size()))));
        }
    }

    private static Consumer<byte[]> subscribe(Scene scene, String topic, SubscriptionType type) throws Exception {
        return scene.subscribing(topic, type.name()).subscriptionType(type).isAckReceiptEnabled(true)
                .enableBatchIndexAcknowledgment(true).subscribe();
    }

    /** So many different ones, in the order in which they first came: what had no receipt yet may be there twice. */
    private static List<Integer> firstTimes(Consumer<byte[]> consumer, int messages) throws Exception {
        List<Integer> numbers = new ArrayList<>();
        while (numbers.size() < messages) {
            int number = Integer.parseInt(Scene.text(Scene.receive(consumer)));
            if (!numbers.contains(number)) {
                numbers.add(number);
            }
        }
        return numbers;
    }
}
