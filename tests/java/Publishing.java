import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.MessageRouter;
import org.apache.pulsar.client.api.MessageRoutingMode;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TopicMetadata;

final class Publishing {
    @Check
    static void inBatches(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.batches(topic, 10).create();
        Scene.send(producer, 0, 95);
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        List<Message<byte[]>> messages = Scene.receive(consumer, 95);
        Scene.equal(Scene.range(0, 95), Scene.numbers(messages));
        for (int number = 0; number < 95; number++) {
            MessageIdAdv id = Scene.id(messages.get(number));
            Scene.equal(number % 10, id.getBatchIndex());
            Scene.equal(number < 90 ? 10 : 5, id.getBatchSize());
            Scene.equal(-1, id.getPartitionIndex());
        }
    }

    @Check
    static void oneByOne(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.singly(topic).create();
        List<MessageIdAdv> sent = new ArrayList<>();
        for (int number = 0; number < 5; number++) {
            sent.add((MessageIdAdv) producer.send(Scene.bytes(Integer.toString(number))));
        }
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        List<Message<byte[]>> messages = Scene.receive(consumer, 5);
        Scene.equal(Scene.range(0, 5), Scene.numbers(messages));
        for (int number = 0; number < 5; number++) {
            MessageIdAdv id = Scene.id(messages.get(number));
            Scene.equal(-1, id.getBatchIndex());
            Scene.equal(0, id.compareTo(sent.get(number)));
            Scene.that(number == 0 || id.compareTo(sent.get(number - 1)) > 0, "ids of one topic rise");
        }
    }

    @Check
    static void compressed(Scene scene) throws Exception {
        byte[] large = new byte[100_000];
        new Random(7).nextBytes(large);
        System.arraycopy(new byte[80_000], 0, large, 0, 80_000);
        for (CompressionType type : CompressionType.values()) {
            String topic = scene.topic();
            try (Producer<byte[]> singly = scene.singly(topic).compressionType(type).create();
                    Producer<byte[]> batches = scene.batches(topic, 3).compressionType(type).create()) {
                singly.send(large);
                Scene.send(batches, 0, 3);
            }
            try (Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe()) {
                Scene.equal(large, Scene.receive(consumer).getData());
                Scene.equal(Scene.range(0, 3), Scene.numbers(Scene.receive(consumer, 3)));
            }
        }
    }

    @Check
    static void withAllThatAMessageHas(Scene scene) throws Exception {
        for (boolean batches : new boolean[] {false, true}) {
            String topic = scene.topic();
            Producer<byte[]> producer = scene.client.newProducer().topic(topic).enableBatching(batches)
                    .producerName("by-name").property("of", "the producer").create();
            long before = System.currentTimeMillis();
            producer.newMessage().key("a key").orderingKey(Scene.bytes("another")).property("one", "1")
                    .property("two", "").eventTime(1234).sequenceId(40).value(Scene.bytes("value")).send();
            producer.newMessage().keyBytes(new byte[] {0, -1}).value(null).send();
            producer.newMessage().value(new byte[0]).send();
            Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
            Message<byte[]> first = Scene.receive(consumer);
            Scene.equal("value", Scene.text(first));
            Scene.equal("a key", first.getKey());
            Scene.equal("another", new String(first.getOrderingKey()));
            Scene.equal(Map.of("one", "1", "two", ""), first.getProperties());
            Scene.equal(1234L, first.getEventTime());
            Scene.equal(40L, first.getSequenceId());
            Scene.equal("by-name", first.getProducerName());
            Scene.equal(topic, first.getTopicName());
            Scene.that(first.getPublishTime() >= before, "published before it was sent");
            Message<byte[]> second = Scene.receive(consumer);
            Scene.equal(new byte[] {0, -1}, second.getKeyBytes());
            Scene.equal(null, second.getValue());
            Scene.that(!second.hasOrderingKey(), "an ordering key that nobody gave");
            Message<byte[]> third = Scene.receive(consumer);
            Scene.equal(new byte[0], third.getValue());
            Scene.that(!third.hasKey(), "a key that nobody gave");
        }
    }

    @Check
    static void inBatchesOfOneKeyEach(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> producer = scene.batches(topic, 1000).batcherBuilder(BatcherBuilder.KEY_BASED).create();
        for (int number = 0; number < 30; number++) {
            producer.newMessage().key("k" + number % 3).value(Scene.bytes(Integer.toString(number))).sendAsync();
        }
        producer.flush();
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        Map<Long, Set<String>> keys = new HashMap<>();
        Map<String, List<Integer>> byKey = new HashMap<>();
        for (Message<byte[]> message : Scene.receive(consumer, 30)) {
            keys.computeIfAbsent(Scene.id(message).getEntryId(), id -> new HashSet<>()).add(message.getKey());
            byKey.computeIfAbsent(message.getKey(), key -> new ArrayList<>()).add(Integer.valueOf(Scene.text(message)));
        }
        Scene.equal(3, keys.size());
        keys.values().forEach(one -> Scene.equal(1, one.size()));
        byKey.values().forEach(one -> Scene.equal(Scene.sorted(one), one));
    }

    @Check
    static void underANameThatIsItsOwn(Scene scene) throws Exception {
        String topic = scene.topic();
        Producer<byte[]> first = scene.singly(topic).producerName("mine").initialSequenceId(99).create();
        first.send(Scene.bytes("0"));
        Scene.equal(100L, first.getLastSequenceId());
        Scene.refused(PulsarClientException.ProducerBusyException.class,
                () -> scene.singly(topic).producerName("mine").create());
        Scene.that(first.isConnected(), "the first has lost its connection");
        first.send(Scene.bytes("1"));
        first.close();
        Producer<byte[]> second = scene.singly(topic).producerName("mine").create();
        second.send(Scene.bytes("2"));
        Producer<byte[]> other = scene.singly(topic).create();
        Scene.that(!other.getProducerName().isEmpty() && !other.getProducerName().equals("mine"), other.getProducerName());
        other.send(Scene.bytes("3"));
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        Scene.equal(Scene.range(0, 4), Scene.numbers(Scene.receive(consumer, 4)));
    }

    @Check
    static void toPartitions(Scene scene) throws Exception {
        String topic = scene.partitioned(3);
        Scene.equal(3, scene.client.getPartitionsForTopic(topic, false).get().size());
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        Producer<byte[]> spread = scene.singly(topic).messageRoutingMode(MessageRoutingMode.RoundRobinPartition).create();
        Scene.send(spread, 0, 30);
        Map<Integer, List<Integer>> byPartition = new HashMap<>();
        for (Message<byte[]> message : Scene.receive(consumer, 30)) {
            byPartition.computeIfAbsent(Scene.id(message).getPartitionIndex(), id -> new ArrayList<>())
                    .add(Integer.valueOf(Scene.text(message)));
            Scene.that(message.getTopicName().startsWith(topic + "-partition-"), message.getTopicName());
        }
        Scene.equal(Set.of(0, 1, 2), byPartition.keySet());
        byPartition.values().forEach(one -> Scene.equal(10, one.size()));
        byPartition.values().forEach(one -> Scene.equal(Scene.sorted(one), one));
        Producer<byte[]> keyed = scene.batches(topic, 5).hashingScheme(HashingScheme.Murmur3_32Hash).create();
        for (int number = 0; number < 30; number++) {
            keyed.newMessage().key("k" + number % 6).value(Scene.bytes(Integer.toString(number))).sendAsync();
        }
        keyed.flush();
        Map<String, Integer> homes = new HashMap<>();
        for (Message<byte[]> message : Scene.receive(consumer, 30)) {
            int partition = Scene.id(message).getPartitionIndex();
            Scene.equal(partition, homes.computeIfAbsent(message.getKey(), key -> partition));
        }
    }

    @Check
    static void toPartitionsThatTheApplicationChooses(Scene scene) throws Exception {
        String topic = scene.partitioned(2);
        Producer<byte[]> single = scene.singly(topic).messageRoutingMode(MessageRoutingMode.SinglePartition).create();
        Scene.send(single, 0, 10);
        Producer<byte[]> chosen = scene.singly(topic).messageRoutingMode(MessageRoutingMode.CustomPartition)
                .messageRouter(new MessageRouter() {
                    @Override
                    public int choosePartition(Message<?> message, TopicMetadata metadata) {
                        return Integer.parseInt(message.getKey()) % metadata.numPartitions();
                    }
                }).create();
        for (int number = 10; number < 20; number++) {
            chosen.newMessage().key(Integer.toString(number)).value(Scene.bytes(Integer.toString(number))).send();
        }
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        Set<Integer> ofSingle = new HashSet<>();
        for (Message<byte[]> message : Scene.receive(consumer, 20)) {
            int number = Integer.parseInt(Scene.text(message));
            if (number < 10) {
                ofSingle.add(Scene.id(message).getPartitionIndex());
            } else {
                Scene.equal(number % 2, Scene.id(message).getPartitionIndex());
            }
        }
        Scene.equal(1, ofSingle.size());
    }

    @Check
    static void toPartitionsThatAreAddedLater(Scene scene) throws Exception {
        String topic = scene.partitioned(1);
        Producer<byte[]> producer = scene.singly(topic).autoUpdatePartitionsInterval(1, TimeUnit.SECONDS)
                .messageRoutingMode(MessageRoutingMode.RoundRobinPartition).create();
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").autoUpdatePartitionsInterval(1, TimeUnit.SECONDS)
                .subscribe();
        scene.ask("more partitions", topic, 3);
        Set<Integer> partitions = new HashSet<>();
        for (int number = 0; partitions.size() < 3; number++) {
            producer.send(Scene.bytes(Integer.toString(number)));
            Message<byte[]> message = consumer.receive(50, TimeUnit.MILLISECONDS);
            if (message != null) {
                partitions.add(Scene.id(message).getPartitionIndex());
            }
        }
    }

    @Check
    static void inChunks(Scene scene) throws Exception {
        String topic = scene.topic();
        byte[] large = new byte[12_000_000];
        new Random(3).nextBytes(large);
        Consumer<byte[]> consumer = scene.subscribing(topic, "s").subscribe();
        Producer<byte[]> producer = scene.singly(topic).enableChunking(true).create();
        Producer<byte[]> small = scene.singly(topic).enableChunking(true).chunkMaxMessageSize(1000).create();
        MessageIdAdv sent = (MessageIdAdv) producer.send(large);
        Message<byte[]> message = Scene.receive(consumer);
        Scene.equal(large, message.getData());
        Scene.equal(0, Scene.id(message).compareTo(sent));
        MessageIdAdv first = Scene.id(message).getFirstChunkMessageId();
        Scene.equal(sent.getEntryId() - 2, first.getEntryId());
        consumer.acknowledge(message);
        byte[] few = new byte[10_000];
        new Random(4).nextBytes(few);
        for (int number = 0; number < 5; number++) {
            small.sendAsync(few);
            producer.sendAsync(few);
        }
        for (Message<byte[]> one : Scene.receive(consumer, 10)) {
            Scene.equal(few, one.getData());
            consumer.acknowledge(one);
        }
        small.flush();
        Scene.equal("11", scene.ask("echo in chunks", topic, 11));
        for (int number = 0; number < 11; number++) {
            Message<byte[]> echo = Scene.receive(consumer);
            Scene.equal(number == 0 ? large : few, echo.getData());
            Scene.equal(number == 0, Scene.id(echo).getFirstChunkMessageId() != null);
            consumer.acknowledge(echo);
        }
        consumer.close();
        Scene.send(producer, 0, 1);
        Scene.equal("0", Scene.text(Scene.receive(scene.subscribing(topic, "s").subscribe())));
    }

    @Check
    static void nothingThatIsTooLarge(Scene scene) throws Exception {
        String topic = scene.topic();
        int most = 5 * 1024 * 1024;
        Producer<byte[]> producer = scene.singly(topic).create();
        Scene.refused(PulsarClientException.InvalidMessageException.class, () -> producer.send(new byte[most + 1]));
        producer.send(new byte[most - 10_000]);
        Scene.equal(most - 10_000, Scene.receive(scene.subscribing(topic, "s").subscribe()).getData().length);
    }

    @Check
    static void valuesOfPlainSchemas(Scene scene) throws Exception {
        values(scene, Schema.STRING, "text \u00e9\u4e2d");
        values(scene, Schema.INT64, 1L << 40);
        values(scene, Schema.DOUBLE, 0.5);
        values(scene, Schema.BOOL, true);
        values(scene, Schema.BYTES, Scene.bytes("bytes"));
    }

    private static <T> void values(Scene scene, Schema<T> schema, T value) throws Exception {
        String topic = scene.topic();
        try (Producer<T> producer = scene.client.newProducer(schema).topic(topic).create();
                Consumer<T> consumer = scene.client.newConsumer(schema).topic(topic).subscriptionName("s").subscribe()) {
            producer.send(value);
            Scene.equal(value, Scene.receive(consumer).getValue());
        }
    }
}
