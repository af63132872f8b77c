import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Does what a stock client of Java can do, at the broker of a URL, and tells what came of it.
 *
 * <pre>java Main pulsar://127.0.0.1:6650 [Reading.fromAnId …]</pre>
 *
 * Checks are methods that are marked as such. All are done at once, since most of them wait most of the time; each has
 * topics of its own, and those of one class share a connection unless they say otherwise. When one has ended there is a line on
 * standard output: {"check": "Reading.fromAnId", "problem": ""}. What only an administrator can do is asked of whoever
 * started the program: {@link Asking}.
 */
final class Main {
    private static final List<Class<?>> GROUPS = List.of(
            Publishing.class, Consuming.class, Acknowledging.class, Redelivery.class, KeyShared.class, Reading.class,
            Finding.class, Schemas.class, Refusals.class, AccessModes.class, Moving.class);
    // By themselves, when the others have ended: what they have done to the broker all would feel.
    private static final List<Class<?>> AFTERWARDS = List.of(Recovering.class);
    private static final long LONGEST_S = 60;

    public static void main(String[] arguments) throws Exception {
        Set<String> wanted = Set.copyOf(Arrays.asList(arguments).subList(1, arguments.length));
        Asking asking = new Asking();
        for (List<Class<?>> groups : List.of(GROUPS, AFTERWARDS)) {
            run(groups, arguments[0], wanted, asking);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(List<Class<?>> groups, String url, Set<String> wanted, Asking asking) throws Exception {
        Map<String, Thread> running = new LinkedHashMap<>();
        for (Class<?> group : groups) {
            PulsarClient client = PulsarClient.builder().serviceUrl(url).ioThreads(1).listenerThreads(1).build();
            for (Method method : group.getDeclaredMethods()) {
                String name = group.getName() + "." + method.getName();
                if (method.isAnnotationPresent(Check.class) && (wanted.isEmpty() || wanted.contains(name))) {
                    Scene scene = new Scene(name, url, client, asking);
                    Thread thread = new Thread(() -> tell(name, problem(method, scene)), name);
                    running.put(name, thread);
                    thread.start();
                }
            }
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LONGEST_S);
        for (Thread thread : running.values()) {
            thread.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())));
            if (thread.isAlive()) {
                tell(thread.getName(), "not done after " + LONGEST_S + " s, at " + Arrays.toString(thread.getStackTrace()));
            }
        }
    }

    private static String problem(Method method, Scene scene) {
        try (scene) {
            method.invoke(null, scene);
            return "";
        } catch (InvocationTargetException error) {
            return text(error.getCause());
        } catch (Exception error) {
            return text(error);
        }
    }

    private static String text(Throwable error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        return text.toString();
    }

    private static void tell(String name, String problem) {
        Asking.say("{\"check\": " + Asking.quoted(name) + ", \"problem\": " + Asking.quoted(problem) + "}");
    }
}
