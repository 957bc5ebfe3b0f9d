import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Prints the committed records of partition 0 of a topic from each of some offsets to the end, until its
 * position is there: "which TAB offset TAB key TAB value". Arguments: bootstrap topic offset…
 */
public class Reads {
    public static void main(String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[0]);
        config.put("enable.auto.commit", false);
        config.put("isolation.level", "read_committed");
        config.put("auto.offset.reset", "none");
        config.put("max.poll.records", 5000);
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        var partition = new TopicPartition(args[1], 0);
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            for (int at = 2; at < args.length; at++) {
                consumer.seek(partition, Long.parseLong(args[at]));
                long deadline = System.nanoTime() + 60_000_000_000L;
                while (consumer.position(partition) < end) {
                    long position = consumer.position(partition);
                    if (System.nanoTime() > deadline) throw new AssertionError("position " + position);
                    for (var record : consumer.poll(Duration.ofMillis(200)))
                        out.println((at - 2) + "\t" + record.offset() + "\t" + record.key() + "\t" + record.value());
                }
            }
        }
        out.flush();
    }
}
