import java.io.FileReader;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/** Kafka's own Java client with settings of a file. Arguments: file topic count. */
public class Secure {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        try {
            produce(settings(args[0]), args[1], count);
            System.out.println("@read " + consume(settings(args[0]), args[1], count));
        } catch (ExecutionException error) {
            for (Throwable each = error; each != null; each = each.getCause())
                System.out.println("@failed " + each.getClass().getSimpleName() + " " + each.getMessage());
        }
    }

    static Properties settings(String file) throws Exception {
        var settings = new Properties();
        try (var reader = new FileReader(file)) { settings.load(reader); }
        return settings;
    }

    static void produce(Properties settings, String topic, int count) throws Exception {
        settings.put("max.block.ms", "20000");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++)
                producer.send(new ProducerRecord<>(topic, "key " + i, ("value " + i + " ").repeat(100)));
            producer.send(new ProducerRecord<>(topic, "last", "last")).get();
        }
    }

    static int consume(Properties settings, String topic, int count) {
        settings.put("group.id", "readers of " + topic);
        settings.put("auto.offset.reset", "earliest");
        int read = 0;
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long until = System.currentTimeMillis() + 60_000;
            while (read <= count && System.currentTimeMillis() < until)
                read += consumer.poll(Duration.ofSeconds(1)).count();
            consumer.commitSync();
        }
        return read;
    }
}
