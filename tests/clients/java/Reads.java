import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Prints the committed records of partition 0 of a topic, "offset TAB key TAB value", from an offset
 * to the end, and ends when its position is there. Arguments: bootstrap topic offset
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
            consumer.seek(partition, Long.parseLong(args[2]));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (consumer.position(partition) < end) {
                if (System.nanoTime() > deadline) throw new AssertionError("position " + consumer.position(partition));
                for (var record : consumer.poll(Duration.ofMillis(200)))
                    out.println(record.offset() + "\t" + record.key() + "\t" + record.value());
            }
        }
        out.flush();
    }
}
