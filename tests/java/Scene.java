import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** What a check has: clients, names of its own, and short ways to say what must hold. */
final class Scene implements AutoCloseable {
    /** For what comes: generous. */
    static final int LONG_S = 40;
    /** For what must not come: whoever waits for nothing can't wait long. */
    static final int MOMENT_MS = 300;

    /** Of this run, for a server that has seen others. */
    private static final String RUN = Long.toString(System.currentTimeMillis(), 36);

    final PulsarClient client;
    private final String name;
    private final String url;
    private final Asking asking;
    private final AtomicInteger topics = new AtomicInteger();
    private final List<AutoCloseable> opened = new ArrayList<>();

    Scene(String name, String url, PulsarClient client, Asking asking) {
        this.name = name;
        this.url = url;
        this.client = client;
        this.asking = asking;
    }

    @Override
    public void close() throws Exception {
        for (AutoCloseable one : opened) {
            one.close();
        }
    }

    /** A client with a connection of its own. */
    PulsarClient ownClient(Configured configured) throws Exception {
        var builder = PulsarClient.builder().serviceUrl(url).ioThreads(1).listenerThreads(1);
        PulsarClient own = configured.of(builder).build();
        opened.add(own);
        return own;
    }

    interface Configured {
        org.apache.pulsar.client.api.ClientBuilder of(org.apache.pulsar.client.api.ClientBuilder builder);
    }

    String topic() {
        return "persistent://public/default/java-" + RUN + "-" + name.toLowerCase() + "-" + topics.incrementAndGet();
    }

    /** A topic of so many partitions. */
    String partitioned(int partitions) throws Exception {
        String topic = topic();
        ask("partitions", topic, partitions);
        return topic;
    }

    String ask(String what, Object... arguments) throws Exception {
        return asking.ask(what, arguments);
    }

    /** Without batches, so that each message is an entry. */
    ProducerBuilder<byte[]> singly(String topic) {
        return client.newProducer().topic(topic).enableBatching(false);
    }

    /** Batches of so many, and of fewer only where it is flushed. */
    ProducerBuilder<byte[]> batches(String topic, int messages) {
        return client.newProducer().topic(topic).batchingMaxMessages(messages)
                .batchingMaxPublishDelay(1, TimeUnit.HOURS).batchingMaxBytes(0);
    }

    /** Of everything that there is. */
    ConsumerBuilder<byte[]> subscribing(String topic, String subscription) {
        return client.newConsumer().topic(topic).subscriptionName(subscription)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** "0", "1" …, all sent when it returns. */
    static void send(Producer<byte[]> producer, int from, int to) throws Exception {
        for (int number = from; number < to; number++) {
            producer.sendAsync(bytes(Integer.toString(number)));
        }
        producer.flush();
    }

    static <T> Message<T> receive(Consumer<T> consumer) throws Exception {
        Message<T> message = consumer.receive(LONG_S, TimeUnit.SECONDS);
        if (message == null) {
            throw new AssertionError("nothing came within " + LONG_S + " s");
        }
        return message;
    }

    static <T> List<Message<T>> receive(Consumer<T> consumer, int messages) throws Exception {
        List<Message<T>> received = new ArrayList<>();
        while (received.size() < messages) {
            received.add(receive(consumer));
        }
        return received;
    }

    static <T> void nothingComes(Consumer<T> consumer) throws Exception {
        Message<T> message = consumer.receive(MOMENT_MS, TimeUnit.MILLISECONDS);
        if (message != null) {
            throw new AssertionError("came: " + text(message) + " " + message.getMessageId());
        }
    }

    static String text(Message<?> message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }

    static <T> List<String> texts(Collection<Message<T>> messages) {
        return messages.stream().map(Scene::text).toList();
    }

    static <T> List<Integer> numbers(Collection<Message<T>> messages) {
        return messages.stream().map(message -> Integer.valueOf(text(message))).toList();
    }

    static List<Integer> range(int from, int to) {
        List<Integer> range = new ArrayList<>();
        for (int number = from; number < to; number++) {
            range.add(number);
        }
        return range;
    }

    static List<Integer> sorted(Collection<Integer> numbers) {
        return numbers.stream().sorted().toList();
    }

    static List<Integer> distinct(Collection<Integer> numbers) {
        return List.copyOf(new TreeSet<>(numbers));
    }

    static MessageIdAdv id(Message<?> message) {
        return (MessageIdAdv) message.getMessageId();
    }

    static void equal(Object expected, Object actual) {
        if (!Objects.deepEquals(expected, actual)) {
            throw new AssertionError("expected " + shown(expected) + ", and it is " + shown(actual));
        }
    }

    private static String shown(Object one) {
        return one instanceof byte[] bytes ? Arrays.toString(bytes) : String.valueOf(one);
    }

    static void that(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(String.valueOf(what));
        }
    }

    /** It fails at once, and so. */
    static void refused(Class<? extends PulsarClientException> how, Callable<?> act) throws Exception {
        try {
            act.call();
        } catch (Exception error) {
            Throwable cause = error;
            while (cause != null && !how.isInstance(cause)) {
                cause = cause.getCause();
            }
            if (cause == null) {
                throw new AssertionError("not refused with " + how.getSimpleName(), error);
            }
            return;
        }
        throw new AssertionError("it is not refused");
    }

    /** Waits until it holds. */
    static void until(Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LONG_S);
        while (!holds.call()) {
            that(System.nanoTime() < deadline, "it does not hold after " + LONG_S + " s");
            Thread.sleep(20);
        }
    }
}
