import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TableView;

final class Reading {
    private static List<Integer> everything(Reader<byte[]> reader) throws Exception {
        List<Integer> numbers = new ArrayList<>();
        while (reader.hasMessageAvailable()) {
            Message<byte[]> message = reader.readNext(Scene.LONG_S, TimeUnit.SECONDS);
            Scene.that(message != null, "a message is available, and none comes");
            numbers.add(Integer.valueOf(Scene.text(message)));
        }
        return numbers;
    }

    private static List<MessageId> ids(Scene scene, String topic) throws Exception {
        Consumer<byte[]> consumer = scene.subscribing(topic, "for ids").subscribe();
        List<MessageId> ids = new ArrayList<>();
        while (ids.size() < 20) {
            ids.add(Scene.receive(consumer).getMessageId());
        }
        consumer.unsubscribe();
        return ids;
    }

    @Check
    static void fromEitherEnd(Scene scene) throws Exception {
        for (boolean batches : new boolean[] {false, true}) {
            String topic = scene.topic();
            Producer<byte[]> producer = (batches ? scene.batches(topic, 5) : scene.singly(topic)).create();
            ReaderBuilder<byte[]> reading = scene.client.newReader().topic(topic);
            Reader<byte[]> ofNothing = reading.clone().startMessageId(MessageId.earliest).create();
            Scene.equal(List.of(), everything(ofNothing));
            Scene.send(producer, 0, 20);
            Scene.equal(Scene.range(0, 20), everything(ofNothing));
            Scene.equal(Scene.range(0, 20), everything(reading.clone().startMessageId(MessageId.earliest).create()));
            Reader<byte[]> latest = reading.clone().startMessageId(MessageId.latest).create();
            Scene.equal(List.of(), everything(latest));
            Reader<byte[]> last = reading.clone().startMessageId(MessageId.latest).startMessageIdInclusive().create();
            Scene.equal(List.of(19), everything(last));
            Scene.send(producer, 20, 30);
            Scene.equal(Scene.range(20, 30), everything(latest));
            Scene.equal(Scene.range(20, 30), everything(last));
        }
    }

    @Check
    static void fromAnId(Scene scene) throws Exception {
        for (boolean batches : new boolean[] {false, true}) {
            String topic = scene.topic();
            Scene.send((batches ? scene.batches(topic, 5) : scene.singly(topic)).create(), 0, 20);
            List<MessageId> ids = ids(scene, topic);
            ReaderBuilder<byte[]> reading = scene.client.newReader().topic(topic);
            for (int at : new int[] {0, 4, 7, 19}) {
                MessageId id = MessageId.fromByteArray(ids.get(at).toByteArray());
                Scene.equal(Scene.range(at + 1, 20), everything(reading.clone().startMessageId(id).create()));
                Scene.equal(Scene.range(at, 20), everything(reading.clone().startMessageId(id).startMessageIdInclusive().create()));
            }
        }
    }

    @Check
    static void fromATime(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.batches(topic, 5).create();
        Scene.send(producer, 0, 10);
        Scene.equal(Scene.range(0, 10), everything(
                scene.client.newReader().topic(topic).startMessageFromRollbackDuration(1, TimeUnit.HOURS).create()));
        Thread.sleep(1100); // what lies between the two must be more than the unit of the duration
        Scene.send(producer, 10, 20);
        Scene.equal(Scene.range(10, 20), everything(
                scene.client.newReader().topic(topic).startMessageFromRollbackDuration(1, TimeUnit.SECONDS).create()));
    }

    @Check
    static void afterASeek(Scene scene) throws Exception {
        for (boolean batches : new boolean[] {false, true}) {
            String topic = scene.topic();
            Producer<byte[]> producer = (batches ? scene.batches(topic, 5) : scene.singly(topic)).create();
            Scene.send(producer, 0, 10);
            Thread.sleep(20);
            long between = System.currentTimeMillis();
            Scene.send(producer, 10, 20);
            List<MessageId> ids = ids(scene, topic);
            Reader<byte[]> reader = scene.client.newReader().topic(topic).startMessageId(MessageId.earliest).create();
            Scene.equal(Scene.range(0, 20), everything(reader));
            reader.seek(ids.get(7));
            Scene.equal(Scene.range(8, 20), everything(reader));
            reader.seek(between);
            Scene.equal(Scene.range(10, 20), everything(reader));
            reader.seek(MessageId.latest);
            Scene.equal(List.of(), everything(reader));
            reader.seek(MessageId.earliest);
            Scene.equal(Scene.range(0, 20), everything(reader));
            Reader<byte[]> inclusive = scene.client.newReader().topic(topic).startMessageId(MessageId.earliest)
                    .startMessageIdInclusive().create();
            inclusive.seek(ids.get(7));
            Scene.equal(Scene.range(7, 20), everything(inclusive));
        }
    }

    @Check
    static void consumersThatSeek(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.singly(topic).create();
        Scene.send(producer, 0, 10);
        Thread.sleep(20);
        long between = System.currentTimeMillis();
        Scene.send(producer, 10, 20);
        List<MessageId> ids = ids(scene, topic);
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        consumer.acknowledgeCumulative(Scene.receive(consumer, 20).get(19));
        consumer.seek(ids.get(5));
        Scene.equal(Scene.range(6, 20), Scene.numbers(Scene.receive(consumer, 14)));
        consumer.seek(between);
        Scene.equal(Scene.range(10, 20), Scene.numbers(Scene.receive(consumer, 10)));
        consumer.seek(MessageId.earliest);
        Scene.equal(Scene.range(0, 20), Scene.numbers(Scene.receive(consumer, 20)));
        consumer.seek(MessageId.latest);
        Scene.nothingComes(consumer);
        Scene.send(producer, 20, 22);
        Scene.equal(List.of(20, 21), Scene.numbers(Scene.receive(consumer, 2)));
    }

    @Check
    static void consumersThatSeekWithinABatch(Scene scene) throws Exception {
        String topic = scene.topic();
        Scene.send(scene.batches(topic, 10).create(), 0, 20);
        List<MessageId> ids = ids(scene, topic);
        Consumer<byte[]> after = scene.subscribing(topic, "after").subscribe();
        Consumer<byte[]> from = scene.subscribing(topic, "from").startMessageIdInclusive().subscribe();
        after.seek(ids.get(13));
        Scene.equal(Scene.range(14, 20), Scene.numbers(Scene.receive(after, 6)));
        from.seek(ids.get(13));
        Scene.equal(Scene.range(13, 20), Scene.numbers(Scene.receive(from, 7)));
    }

    @Check
    static void partitions(Scene scene) throws Exception {
        String topic = scene.partitioned(3);
        Producer<byte[]> producer = scene.singly(topic).create();
        Reader<byte[]> reader = scene.client.newReader().topic(topic).startMessageId(MessageId.earliest).create();
        Scene.equal(List.of(), everything(reader));
        Scene.send(producer, 0, 30);
        Scene.equal(Scene.range(0, 30), Scene.sorted(everything(reader)));
        reader.seek(MessageId.earliest);
        Scene.equal(Scene.range(0, 30), Scene.sorted(everything(reader)));
    }

    @Check
    static void theLastIds(Scene scene) throws Exception {
        String topic = scene.topic();
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        Scene.equal(-1L, ((org.apache.pulsar.client.api.MessageIdAdv) consumer.getLastMessageIds().get(0)).getEntryId());
        Scene.send(scene.batches(topic, 3).create(), 0, 6);
        MessageId last = Scene.receive(consumer, 6).get(5).getMessageId();
        Scene.equal(0, last.compareTo(consumer.getLastMessageIds().get(0)));
        String partitioned = scene.partitioned(2);
        Scene.send(scene.singly(partitioned).create(), 0, 4);
        Consumer<byte[]> both = scene.subscribing(partitioned, "s").subscribe();
        Scene.equal(2, both.getLastMessageIds().size());
    }

    @Check
    static void aTable(Scene scene) throws Exception {
        for (String topic : List.of(scene.topic(), scene.partitioned(2))) {
            Producer<String> producer = scene.client.newProducer(Schema.STRING).topic(topic).create();
            producer.newMessage().key("a").value("1").send();
            producer.newMessage().key("b").value("2").send();
            producer.newMessage().key("a").value("3").send();
            try (TableView<String> table = scene.client.newTableView(Schema.STRING).topic(topic)
                    .autoUpdatePartitionsInterval(60, TimeUnit.SECONDS).create()) {
                Scene.equal(Map.of("a", "3", "b", "2"), Map.copyOf(new java.util.HashMap<>(asMap(table))));
                Map<String, String> heard = new ConcurrentHashMap<>();
                table.listen((key, value) -> heard.put(key, String.valueOf(value)));
                producer.newMessage().key("c").value("4").send();
                producer.newMessage().key("b").value(null).send();
                Scene.until(() -> asMap(table).equals(Map.of("a", "3", "c", "4")));
                Scene.until(() -> "4".equals(heard.get("c")));
            }
        }
    }

    private static Map<String, String> asMap(TableView<String> table) {
        Map<String, String> map = new ConcurrentHashMap<>();
        table.forEach(map::put);
        return map;
    }
}
