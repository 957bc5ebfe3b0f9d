import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

/** Kafka's own Java client writes and reads back, partitions assigned. Arguments: bootstrap count codec… */
public class RoundTrip {
    static final long FIRST = System.currentTimeMillis() - 24 * 60 * 60 * 1000L;

    static String key(int i) { return i % 5 == 0 && i % 97 != 0 ? null : "key " + i % 100; }

    static String value(int i) { return i % 97 == 0 ? null : ("value " + i + " ").repeat(1 + i % 7); }

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[1]);
        for (int at = 2; at < args.length; at++) {
            String topic = "java-" + args[at];
            produce(args[0], topic, args[at], count);
            consume(args[0], topic, count);
            System.out.println(args[at] + " equal " + count);
        }
    }

    static void produce(String bootstrap, String topic, String codec, int count) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("acks", "all");
        config.put("enable.idempotence", true);
        config.put("compression.type", codec);
        config.put("linger.ms", 5);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                var record = new ProducerRecord<>(topic, null, FIRST + i, key(i), value(i));
                if (i % 3 == 0) {
                    record.headers().add("n", Integer.toString(i).getBytes(StandardCharsets.UTF_8));
                    record.headers().add("n", "again".getBytes(StandardCharsets.UTF_8));
                }
                sent.add(producer.send(record));
            }
            for (var future : sent) future.get();
        }
    }

    static void consume(String bootstrap, String topic, int count) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", false);
        config.put("max.poll.records", 5000);
        BitSet seen = new BitSet(count);
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(info -> partitions.add(new TopicPartition(topic, info.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (seen.cardinality() < count) {
                var records = consumer.poll(Duration.ofSeconds(30));
                check(!records.isEmpty(), "only " + seen.cardinality() + " of " + count + " came");
                for (var record : records) {
                    int i = (int) (record.timestamp() - FIRST);
                    check(!seen.get(i), "record " + i + " came twice");
                    check(Objects.equals(record.key(), key(i)), "key of " + i);
                    check(Objects.equals(record.value(), value(i)), "value of " + i);
                    Header[] headers = record.headers().toArray();
                    check(headers.length == (i % 3 == 0 ? 2 : 0), "headers of " + i);
                    if (headers.length > 0) {
                        check(new String(headers[0].value()).equals(Integer.toString(i)), "header of " + i);
                        check(new String(headers[1].value()).equals("again"), "second header of " + i);
                    }
                    seen.set(i);
                }
            }
        }
    }

    static void check(boolean right, String what) {
        if (!right) throw new AssertionError(what);
    }
}
