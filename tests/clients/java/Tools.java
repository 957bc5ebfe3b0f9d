import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, many calls in one process: a line of standard input is a main class
 * and its arguments, with tabs between; what it prints is followed by a line "ended CODE".
 */
public class Tools {
    static class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            super("exit " + code);
            this.code = code;
        }
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> { throw new Ended(code); });
        Exit.setHaltProcedure((code, message) -> { throw new Ended(code); });
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split("\t");
            int code = 0;
            try {
                Object given = Arrays.copyOfRange(words, 1, words.length);
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, given);
            } catch (InvocationTargetException error) {
                if (error.getCause() instanceof Ended ended) code = ended.code;
                else throw error;
            }
            System.out.println("\nended " + code);
            System.out.flush();
        }
    }
}
