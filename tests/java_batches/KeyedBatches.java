import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/** Publishes batches of one key each: {@code KeyedBatches URL}. The messages are those of capture_java_batches.py. */
final class KeyedBatches {
    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            Producer<byte[]> producer = client.newProducer().topic("keyed").batcherBuilder(BatcherBuilder.KEY_BASED)
                    .batchingMaxPublishDelay(1, TimeUnit.HOURS).create();
            for (int number = 0; number < 3; number++) {
                for (String key : new String[] {"a", "b"}) {
                    message(producer, key + number).key(key).sendAsync();
                }
                message(producer, "ordered" + number).key("a").orderingKey(bytes("o")).sendAsync();
                message(producer, "without key" + number).sendAsync();
                message(producer, "bytes" + number).keyBytes(bytes("kb")).sendAsync();
            }
            message(producer, "alone").key("c").sendAsync();
            producer.flush();
        }
    }

    private static TypedMessageBuilder<byte[]> message(Producer<byte[]> producer, String text) {
        return producer.newMessage().value(bytes(text));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
