import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Asks whoever started the program to do something: a line {"ask": "unload", "arguments": ["topic"], "number": 7} on
 * standard output, and an answer on standard input: the number, a space, and the text.
 */
final class Asking {
    private static final long LONGEST_S = 50;

    private final AtomicInteger numbers = new AtomicInteger();
    private final Map<Integer, CompletableFuture<String>> waiting = new ConcurrentHashMap<>();

    Asking() {
        Thread reader = new Thread(this::read, "answers");
        reader.setDaemon(true);
        reader.start();
    }

    String ask(String what, Object... arguments) throws Exception {
        int number = numbers.incrementAndGet();
        CompletableFuture<String> answer = new CompletableFuture<>();
        waiting.put(number, answer);
        String told = Stream.of(arguments).map(one -> quoted(one.toString())).collect(Collectors.joining(", "));
        say("{\"ask\": " + quoted(what) + ", \"arguments\": [" + told + "], \"number\": " + number + "}");
        return answer.get(LONGEST_S, TimeUnit.SECONDS);
    }

    private void read() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] parts = line.split(" ", 2);
                waiting.remove(Integer.valueOf(parts[0])).complete(parts[1]);
            }
        } catch (IOException error) {
            System.err.println("nobody answers any more: " + error);
        }
    }

    static synchronized void say(String line) {
        System.out.println(line);
    }

    /** As JSON has it. */
    static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            out.append(one < ' ' || one > '~' || one == '"' || one == '\\' ? String.format("\\u%04x", (int) one) : one);
        }
        return out.append('"').toString();
    }
}
