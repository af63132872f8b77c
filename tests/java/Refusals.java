import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;

/** What is not there yet is said to be so, at once; who asked goes on with the same connection. */
final class Refusals {
    private static void worksYet(Producer<byte[]> producer) throws Exception {
        producer.send(Scene.bytes("0"));
        Scene.equal(0L, producer.getLastDisconnectedTimestamp());
    }

    @Check
    static void ofDelays(Scene scene) throws Exception {
        Producer<byte[]> producer = scene.client.newProducer().topic(scene.topic()).create();
        Scene.refused(PulsarClientException.NotAllowedException.class,
                () -> producer.newMessage().deliverAfter(1, TimeUnit.HOURS).value(Scene.bytes("later")).send());
        worksYet(producer);
    }

    @Check
    static void ofTransactions(Scene scene) throws Exception {
        Scene.refused(PulsarClientException.class, () -> {
            PulsarClient client = scene.ownClient(builder -> builder.enableTransaction(true));
            return client.newTransaction().withTransactionTimeout(5, TimeUnit.SECONDS).build().get(Scene.LONG_S, TimeUnit.SECONDS);
        });
        String topic = scene.topic();
        worksYet(scene.singly(topic).create());
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        Scene.equal("0", Scene.text(Scene.receive(consumer)));
    }
}
