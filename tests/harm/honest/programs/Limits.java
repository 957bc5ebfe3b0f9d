import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * What only the Java producer does: batches are bounded by what they are compressed, so that those of
 * equal records become very long. And records as large as a topic takes them. Argument: bootstrap.
 */
public class Limits {
    static final int MiB = 1 << 20;

    public static void main(String[] args) throws Exception {
        step("equal_records", () -> equalRecords(args[0]));
        step("large_records", () -> largeRecords(args[0]));
    }

    interface Step { void run() throws Exception; }

    static void step(String name, Step step) throws Exception {
        long begun = System.nanoTime();
        step.run();
        System.out.printf("@%s %.2f%n", name, (System.nanoTime() - begun) / 1e9);
    }

    static void check(boolean right, String what) {
        if (!right) throw new AssertionError(what);
    }

    static void create(String bootstrap, String topic, Map<String, String> configs) throws Exception {
        try (var admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(configs))).all().get();
        }
    }

    /** Values of zeros, a ten-thousandth when compressed, into a topic whose batches are opened. */
    static void equalRecords(String bootstrap) throws Exception {
        create(bootstrap, "equal", Map.of("cleanup.policy", "compact"));
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", "zstd");
        config.put("linger.ms", 1000);
        config.put("batch.size", MiB);
        byte[] value = new byte[512 << 10];
        try (var producer = new KafkaProducer<>(config, new IntegerSerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < 600; i++) sent.add(producer.send(new ProducerRecord<>("equal", 0, i, value)));
            Set<Long> offsets = new HashSet<>();
            for (var future : sent) offsets.add(future.get().offset());
            check(offsets.size() == sent.size(), "each record has an offset of its own");
        }
    }

    static void largeRecords(String bootstrap) throws Exception {
        create(bootstrap, "java-large", Map.of("max.message.bytes", "" + 51 * MiB));
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("max.request.size", 51 * MiB);
        config.put("buffer.memory", 120 * MiB);
        byte[] value = new byte[50 * MiB];
        new Random(1).nextBytes(value);
        try (var producer = new KafkaProducer<>(config, new IntegerSerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>("java-large", 0, 1, value)).get();
        }
        Map<String, Object> reading = new HashMap<>();
        reading.put("bootstrap.servers", bootstrap);
        try (var consumer = new KafkaConsumer<>(reading, new IntegerDeserializer(), new ByteArrayDeserializer())) {
            var place = new TopicPartition("java-large", 0);
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            var records = consumer.poll(Duration.ofSeconds(30));
            for (int i = 0; records.isEmpty() && i < 10; i++) records = consumer.poll(Duration.ofSeconds(10));
            check(Arrays.equals(records.iterator().next().value(), value), "the large record is read");
        }
    }
}
