import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.SubscriptionType;

/** Key_Shared subscriptions. Of two consumers, the second one to join gets the lower half of the slots. */
final class KeyShared {
    private static final List<String> LOWER = List.of("key-1", "key-10", "key-2", "key-3", "key-6", "key-8", "key-9");
    private static final List<String> UPPER = List.of("key-0", "key-11", "key-4", "key-5", "key-7");
    private static final int KEYS = 12;

    private static Consumer<byte[]> subscribe(Scene scene, String topic, KeySharedPolicy policy) throws Exception {
        return scene.subscribing(topic, "s").subscriptionType(SubscriptionType.Key_Shared).keySharedPolicy(policy).subscribe();
    }

    /** Sends messages with these numbers of each key. */
    private static void send(Producer<byte[]> producer, int... numbers) throws Exception {
        for (int number : numbers) {
            for (int key = 0; key < KEYS; key++) {
                producer.newMessage().key("key-" + key).value(Scene.bytes(Integer.toString(number))).sendAsync();
            }
        }
        producer.flush();
    }

    /** Receives two messages of each of these keys, in order. */
    private static List<MessageId> receive(Consumer<byte[]> consumer, List<String> keys, int first) throws Exception {
        Map<String, List<Integer>> found = new TreeMap<>();
        List<MessageId> ids = new ArrayList<>();
        for (Message<byte[]> message : Scene.receive(consumer, 2 * keys.size())) {
            found.computeIfAbsent(message.getKey(), key -> new ArrayList<>()).add(Integer.valueOf(Scene.text(message)));
            ids.add(message.getMessageId());
        }
        Scene.equal(keys, List.copyOf(found.keySet()));
        for (List<Integer> numbers : found.values()) {
            Scene.equal(List.of(first, first + 1), numbers);
        }
        return ids;
    }

    /** A key moves to a new consumer when the old one has acknowledged what it has of it. */
    @Check
    static void autoSplit(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.singly(topic).create();
        Consumer<byte[]> first = subscribe(scene, topic, KeySharedPolicy.autoSplitHashRange());
        send(producer, 0, 1);
        List<String> all = new ArrayList<>(LOWER);
        all.addAll(UPPER);
        List<MessageId> had = receive(first, all.stream().sorted().toList(), 0);
        Consumer<byte[]> second = subscribe(scene, topic, KeySharedPolicy.autoSplitHashRange());
        send(producer, 2, 3);
        receive(first, UPPER, 2);
        Scene.nothingComes(second);
        first.acknowledge(had);
        receive(second, LOWER, 2);
        Scene.nothingComes(first);
    }

    /** Each consumer declares its slots. Messages of slots that none has wait, and overlaps are refused. */
    @Check
    static void sticky(Scene scene) throws Exception {
        String topic = scene.topic();
        send(scene.singly(topic).create(), 0, 1);
        Consumer<byte[]> low = subscribe(scene, topic, KeySharedPolicy.stickyHashRange().ranges(Range.of(0, 32767)));
        receive(low, LOWER, 0);
        Scene.refused(PulsarClientException.ConsumerAssignException.class,
                () -> subscribe(scene, topic, KeySharedPolicy.stickyHashRange().ranges(Range.of(100, 200))));
        Scene.refused(PulsarClientException.ConsumerBusyException.class,
                () -> subscribe(scene, topic, KeySharedPolicy.autoSplitHashRange()));
        receive(subscribe(scene, topic, KeySharedPolicy.stickyHashRange().ranges(Range.of(32768, 65535))), UPPER, 0);
        Scene.nothingComes(low);
    }
}
