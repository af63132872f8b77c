import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.PulsarClientException;

final class AccessModes {
    /** A second producer is refused at once, and creation waits for its turn. */
    @Check
    static void takingTurns(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> leader = scene.singly(topic).accessMode(ProducerAccessMode.Exclusive).create();
        Scene.refused(PulsarClientException.ProducerBusyException.class, () -> scene.singly(topic).create());
        Scene.refused(
                PulsarClientException.ProducerFencedException.class,
                () -> scene.singly(topic).accessMode(ProducerAccessMode.Exclusive).create());
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        CompletableFuture<Producer<byte[]>> waiting = scene.singly(topic)
                .accessMode(ProducerAccessMode.WaitForExclusive)
                .createAsync();
        Scene.send(leader, 0, 5);
        Scene.equal(Scene.range(0, 5), Scene.numbers(Scene.receive(consumer, 5)));
        Scene.that(!waiting.isDone(), "it waits");
        leader.close();
        Scene.send(waiting.get(Scene.LONG_S, TimeUnit.SECONDS), 5, 10);
        Scene.equal(Scene.range(5, 10), Scene.numbers(Scene.receive(consumer, 5)));
    }

    /** The fenced producer fails, and does not come back when the topic is free. */
    @Check
    static void fencing(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> fenced = scene.singly(topic).accessMode(ProducerAccessMode.Exclusive).create();
        Scene.send(fenced, 0, 1);
        Producer<byte[]> leader = scene.singly(topic).accessMode(ProducerAccessMode.ExclusiveWithFencing).create();
        Scene.refused(PulsarClientException.ProducerFencedException.class, () -> fenced.send(Scene.bytes("late")));
        Scene.send(leader, 1, 2);
        leader.close();
        Scene.refused(PulsarClientException.class, () -> fenced.send(Scene.bytes("late")));
        Scene.send(scene.singly(topic).create(), 2, 3);
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        Scene.equal(Scene.range(0, 3), Scene.numbers(Scene.receive(consumer, 3)));
    }

    /** On all partitions; the next one gets all of them. */
    @Check
    static void partitions(Scene scene) throws Exception {
        String topic = scene.partitioned(3);
        Producer<byte[]> leader = scene.singly(topic).accessMode(ProducerAccessMode.Exclusive).create();
        Scene.send(leader, 0, 6);
        for (ProducerAccessMode mode : List.of(ProducerAccessMode.Exclusive, ProducerAccessMode.Shared)) {
            Scene.refused(PulsarClientException.class, () -> scene.singly(topic).accessMode(mode).create());
        }
        Producer<byte[]> next = scene.singly(topic).accessMode(ProducerAccessMode.ExclusiveWithFencing).create();
        Scene.send(next, 6, 12);
        Scene.refused(PulsarClientException.ProducerFencedException.class, () -> {
            for (int number = 12; number < 15; number++) {
                leader.send(Scene.bytes("late"));
            }
            return null;
        });
    }
}
