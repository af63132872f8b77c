import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionType;

/** Topics that move, and topics that others use, too. */
final class Moving {
    @Check
    static void onWhileTopicsAreUnloaded(Scene scene) throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Shared)) {
            String topic = scene.topic();
            Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscriptionType(type).subscribe();
            Producer<byte[]> producer = scene.batches(topic, 10).batchingMaxPublishDelay(1, TimeUnit.MILLISECONDS)
                    .blockIfQueueFull(true).create();
            Reader<byte[]> reader = scene.client.newReader().topic(topic).startMessageId(MessageId.earliest).create();
            CompletableFuture<?>[] sent = new CompletableFuture<?>[2000];
            Set<Integer> left = new HashSet<>(Scene.range(0, sent.length));
            for (int number = 0; number < sent.length; number++) {
                sent[number] = producer.sendAsync(Scene.bytes(Integer.toString(number)));
                if (number % 600 == 599) {
                    scene.ask("unload", topic);
                }
                Message<byte[]> message = consumer.receive(0, TimeUnit.MILLISECONDS);
                if (message != null) {
                    left.remove(Integer.valueOf(Scene.text(message)));
                    consumer.acknowledge(message);
                }
            }
            CompletableFuture.allOf(sent).get(Scene.LONG_S, TimeUnit.SECONDS);
            while (!left.isEmpty()) {
                Message<byte[]> message = Scene.receive(consumer);
                left.remove(Integer.valueOf(Scene.text(message)));
                consumer.acknowledge(message);
            }
            for (int number = 0; number < sent.length; number++) {
                Message<byte[]> message = reader.readNext(Scene.LONG_S, TimeUnit.SECONDS);
                Scene.that(message != null, "nothing comes to the reader behind " + number);
                int read = Integer.parseInt(Scene.text(message));
                if (read < number) {
                    number = read; // it was sent twice, as what had no receipt yet when the topic moved
                }
                Scene.equal(number, read);
            }
        }
    }

    @Check
    static void withOneOfPython(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.batches(topic, 5).compressionType(CompressionType.ZSTD).create();
        for (int number = 0; number < 10; number++) {
            producer.newMessage().key("k" + number).property("of", "Java").value(Scene.bytes(Integer.toString(number))).sendAsync();
        }
        producer.flush();
        // It sends 10 more, and tells what it then receives of all of them.
        String received = scene.ask("pulsar-client", topic);
        Scene.equal(String.join(" ", IntStream.range(0, 20).mapToObj(
                number -> number + (number < 10 ? "/k" + number + "/Java" : "/p" + number + "/Python")).toList()), received);
        List<Message<byte[]>> messages = Scene.receive(scene.subscribing(topic, "s").subscribe(), 20);
        Scene.equal(Scene.range(0, 20), Scene.numbers(messages));
        Scene.equal("p10", messages.get(10).getKey());
        Scene.equal(Map.of("of", "Python"), messages.get(10).getProperties());
    }
}
