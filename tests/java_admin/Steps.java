import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/**
 * Calls of the admin client, each of which prints one line of JSON: its name, and the value it returned or the class and
 * status code of its error. Values are written by the client's own ObjectMapper.
 */
final class Steps {
    /** A call without a result. */
    interface Action {
        void run() throws Exception;
    }

    private static final long SETTLE_MS = 5000;

    final PulsarAdmin admin;
    final PulsarClient client;
    final String tenant;
    final String cluster;
    private final java.util.Set<String> names = new java.util.HashSet<>();

    Steps(PulsarAdmin admin, PulsarClient client, String tenant, String cluster) {
        this.admin = admin;
        this.client = client;
        this.tenant = tenant;
        this.cluster = cluster;
    }

    String namespace(String name) {
        return tenant + "/" + name;
    }

    String topic(String name) {
        return "persistent://" + tenant + "/topics/" + name;
    }

    void get(String name, Callable<?> call) {
        print(name, outcome(call));
    }

    void run(String name, Action action) {
        get(name, () -> {
            action.run();
            return null;
        });
    }

    /** Read a value before it is set, after that, and after it was removed. */
    void policy(String name, Callable<?> read, Action set, Action remove) {
        Map<String, Object> before = outcome(read);
        print(name + ".before", before);
        run(name + ".set", set);
        Map<String, Object> changed = changedFrom(before, read);
        print(name + ".get", changed);
        if (remove != null) {
            run(name + ".remove", remove);
            print(name + ".after", changedFrom(changed, read));
        }
    }

    /** Poll until the outcome is another one: brokers apply changes of policies asynchronously. */
    private static Map<String, Object> changedFrom(Map<String, Object> before, Callable<?> read) {
        long deadline = System.currentTimeMillis() + SETTLE_MS;
        Map<String, Object> now = outcome(read);
        // The value that was set may be the one that was there: then the loop ends by time.
        while (json(now).equals(json(before)) && System.currentTimeMillis() < deadline && !now.containsKey("error")) {
            pause(50);
            now = outcome(read);
            if (System.currentTimeMillis() > deadline - SETTLE_MS + 1000) {
                break;
            }
        }
        return now;
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Map<String, Object> outcome(Callable<?> call) {
        Map<String, Object> result = new LinkedHashMap<>();
        try {
            result.put("value", plain(call.call()));
        } catch (PulsarAdminException error) {
            result.put("error", error.getClass().getSimpleName());
            result.put("status", error.getStatusCode());
        } catch (Exception error) {
            Throwable cause = error instanceof java.util.concurrent.ExecutionException ? error.getCause() : error;
            result.put("error", cause.getClass().getSimpleName());
            if (cause instanceof PulsarAdminException) {
                result.put("status", ((PulsarAdminException) cause).getStatusCode());
            }
        }
        return result;
    }

    private static Object plain(Object value) {
        if (value instanceof MessageId) {
            return messageId((MessageId) value);
        }
        if (value instanceof Message) {
            return message((Message<?>) value);
        }
        if (value instanceof List) {
            List<Object> plain = new ArrayList<>();
            ((List<?>) value).forEach(each -> plain.add(plain(each)));
            return plain;
        }
        if (value instanceof Map) {
            Map<String, Object> plain = new TreeMap<>();
            ((Map<?, ?>) value).forEach((key, each) -> plain.put(String.valueOf(key), plain(each)));
            return plain;
        }
        return value;
    }

    private static Map<String, Object> messageId(MessageId id) {
        MessageIdImpl position = (MessageIdImpl) id;
        Map<String, Object> plain = new LinkedHashMap<>();
        plain.put("ledgerId", position.getLedgerId());
        plain.put("entryId", position.getEntryId());
        plain.put("partitionIndex", position.getPartitionIndex());
        plain.put("batchIndex", id instanceof BatchMessageIdImpl ? ((BatchMessageIdImpl) id).getBatchIndex() : -1);
        return plain;
    }

    private static Map<String, Object> message(Message<?> message) {
        Map<String, Object> plain = new LinkedHashMap<>();
        plain.put("data", new String(message.getData()));
        plain.put("key", message.getKey());
        plain.put("properties", new TreeMap<>(message.getProperties()));
        plain.put("eventTime", message.getEventTime() == 0 ? "none" : message.getEventTime());
        plain.put("producerName", message.getProducerName());
        plain.put("sequenceId", message.getSequenceId());
        plain.put("id", message.getMessageId() == null ? null : messageId(message.getMessageId()));
        return plain;
    }

    private void print(String name, Map<String, Object> outcome) {
        if (!names.add(name)) {
            throw new IllegalArgumentException("two steps have the name " + name);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("step", name);
        line.put("outcome", outcome);
        System.out.println(json(line));
        System.out.flush();
    }

    private static String json(Object value) {
        try {
            return ObjectMapperFactory.getMapper().writer().writeValueAsString(value);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
