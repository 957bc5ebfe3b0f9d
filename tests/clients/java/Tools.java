import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, many calls in one process: a line of standard input is a main class
 * and its arguments, with tabs between; what it prints is followed by a line "ended CODE". A last
 * argument <FILE is what the tool reads as its standard input. What it wants done when its
 * process ends is done when it ends.
 */
public class Tools {
    static class Ended extends RuntimeException {
        Ended(int code) {
            super("Tools$Ended", null, false, false);
            if (Tools.code < 0) Tools.code = code;
        }
    }

    /** Of the tool; some catch what ends them, and end a second time. */
    static int code;
    static final List<Runnable> hooks = new CopyOnWriteArrayList<>();

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> { throw new Ended(code); });
        Exit.setHaltProcedure((code, message) -> { throw new Ended(code); });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        InputStream told = System.in;
        var lines = new BufferedReader(new InputStreamReader(told));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split("\t");
            int count = words.length;
            if (words[count - 1].startsWith("<")) {
                System.setIn(new FileInputStream(words[--count].substring(1)));
            }
            code = -1;
            run(words[0], Arrays.copyOfRange(words, 1, count));
            hooks.forEach(Runnable::run);
            hooks.clear();
            System.setIn(told);
            System.out.println("\nended " + Math.max(code, 0));
            System.out.flush();
        }
    }

    static void run(String tool, String[] given) throws Exception {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) given);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Ended) return;
            // As a process of its own would end.
            error.getCause().printStackTrace();
            code = 1;
        }
    }
}
