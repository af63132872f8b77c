import java.util.Comparator;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.Topics;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionType;


/** Statistics of topics with a producer and a consumer, 4 messages of which 1 was acknowledged. */
final class StatisticsSteps {
    static void run(Steps steps) throws Exception {
        Topics topics = steps.admin.topics();
        for (String kind : new String[] {"plain", "parts"}) {
            String topic = steps.topic("measured-" + kind);
            if (kind.equals("parts")) {
                topics.createPartitionedTopic(topic, 2);
            } else {
                topics.createNonPartitionedTopic(topic);
            }
            Producer<byte[]> producer = steps.client.newProducer().topic(topic).enableBatching(false).producerName("producer").property("p", "q").create();
            Consumer<byte[]> consumer = steps.client.newConsumer().topic(topic).subscriptionName("s").consumerName("consumer")
                    .subscriptionType(SubscriptionType.Shared).property("c", "d").subscriptionProperties(Map.of("s", "t"))
                    .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS).subscribe();
            for (int number = 0; number < 4; number++) {
                producer.newMessage().value(("m" + number).getBytes()).key("k" + number).send();
            }
            for (int number = 0; number < 4; number++) {
                consumer.receive(20, TimeUnit.SECONDS);
            }
            // The last message, of the first partition if there are several.
            consumer.acknowledge(consumer.getLastMessageIds().stream().min(Comparator.comparingInt(id -> ((MessageIdAdv) id).getPartitionIndex())).get());
            Steps.pause(300);
            String of = "statistics." + kind + ".";
            steps.get(of + "stats", () -> topics.getStats(topic, true, true, true));
            steps.get(of + "internal stats", () -> topics.getInternalStats(topic));
            steps.get(of + "partitioned", () -> topics.getPartitionedStats(topic, false));
            steps.get(of + "partitioned.each", () -> topics.getPartitionedStats(topic, true));
            steps.get(of + "partitioned internal", () -> topics.getPartitionedInternalStats(topic));
            steps.run(of + "delete.connected", () -> topics.delete(topic));
            steps.run(of + "delete subscription.connected", () -> topics.deleteSubscription(topic, "s"));
            steps.run(of + "delete partitioned.connected", () -> topics.deletePartitionedTopic(topic));
            producer.close();
            consumer.close();
            steps.run(of + "delete.subscribed", () -> topics.delete(topic));
            steps.run(of + "delete.partitioned", () -> topics.deletePartitionedTopic(topic, true));
            steps.run(of + "delete.force", () -> topics.delete(topic, true));
        }
    }
}
