import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Transactional producers of Kafka's own Java client, and pipes from topic to topic, told what to do by lines of
 * words between tabs; each is answered by a line that begins with "@ok" or "@failed". See tests/clients/producers.py.
 * The end of the input ends everything.
 */
public class Transactions {
    static final PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    static final Map<String, Pipe> pipes = new HashMap<>();

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            try {
                out.println("@ok" + obey(line.split("\t")));
            } catch (Exception error) {
                out.println("@failed\t" + one(error));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static String one(Throwable error) {
        return error.toString().replaceAll("\\s+", " ");
    }

    static String obey(String[] words) throws Exception {
        String name = words[1];
        switch (words[0]) {
            case "producer" -> producers.put(name, open(words[2], words[3], words[4]));
            case "begin" -> producers.get(name).beginTransaction();
            case "send" -> {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int at = 3; at < words.length; at += 2)
                    sent.add(producers.get(name).send(new ProducerRecord<>(words[2], Integer.parseInt(words[at]), null, words[at + 1])));
                for (var future : sent) future.get();
            }
            case "commit" -> producers.get(name).commitTransaction();
            case "abort" -> producers.get(name).abortTransaction();
            case "close" -> producers.remove(name).close(Duration.ofSeconds(10));
            case "pipe" -> {
                Pipe pipe = new Pipe(words[2], words[3], words[4], words[5], Long.parseLong(words[6]));
                pipes.put(name, pipe);
                pipe.setDaemon(true);
                pipe.start();
            }
            case "stop" -> {
                Pipe pipe = pipes.remove(name);
                pipe.ending = true;
                pipe.join(60_000);
                if (pipe.failure != null) throw pipe.failure;
                return "\t" + pipe.commits + "\t" + pipe.aborts;
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    static KafkaProducer<String, String> open(String bootstrap, String id, String timeout) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", id);
        config.put("transaction.timeout.ms", timeout);
        config.put("linger.ms", 5);
        // A call whose request is queued when its producer is fenced waits for all of this.
        config.put("max.block.ms", 20_000);
        config.put("request.timeout.ms", 5_000);
        config.put("reconnect.backoff.max.ms", 500);
        var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    /** Consume, transform, produce. A producer that cannot go on is replaced; what is not committed is read again. */
    static class Pipe extends Thread {
        final String bootstrap, id, source, sink;
        final Random random;
        volatile boolean ending;
        volatile Exception failure;
        volatile int commits, aborts;
        KafkaConsumer<String, String> consumer;
        KafkaProducer<String, String> producer;

        Pipe(String bootstrap, String id, String source, String sink, long seed) {
            this.bootstrap = bootstrap;
            this.id = id;
            this.source = source;
            this.sink = sink;
            random = new Random(seed);
        }

        public void run() {
            Map<String, Object> config = new HashMap<>();
            config.put("bootstrap.servers", bootstrap);
            config.put("group.id", sink);
            config.put("auto.offset.reset", "earliest");
            config.put("enable.auto.commit", false);
            config.put("isolation.level", "read_committed");
            config.put("max.poll.records", 20);
            config.put("fetch.max.wait.ms", 100);
            config.put("heartbeat.interval.ms", 300);
            config.put("session.timeout.ms", 6_000);
            config.put("request.timeout.ms", 5_000);
            config.put("reconnect.backoff.max.ms", 500);
            try {
                consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
                consumer.subscribe(List.of(source));
                while (!ending) {
                    var records = consumer.poll(Duration.ofMillis(100));
                    if (!records.isEmpty()) pass(records);
                }
                consumer.close();
                if (producer != null) producer.close(Duration.ofSeconds(10));
            } catch (Exception error) {
                failure = error;
            }
        }

        /** One transaction over these records. */
        void pass(ConsumerRecords<String, String> records) {
            try {
                if (producer == null) producer = open(bootstrap, id, "8000");
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                for (var record : records) {
                    producer.send(new ProducerRecord<>(sink, record.partition(), null, record.value() + "!"));
                    ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                if (random.nextInt(100) < 25) {
                    producer.abortTransaction();
                    aborts++;
                    rewind();
                } else {
                    producer.commitTransaction();
                    commits++;
                }
            } catch (KafkaException error) {
                System.out.println(id + ": " + one(error));
                recover();
                rewind();
            }
        }

        /** After an error: abort what is open; where that is not possible, a new producer of the same id does it. */
        void recover() {
            if (producer == null) return;
            try {
                producer.abortTransaction();
            } catch (KafkaException | IllegalStateException error) {
                System.out.println(id + ": at the abort: " + one(error));
                producer.close(Duration.ZERO);
                producer = null;
            }
        }

        /** Back to what the group has committed. */
        void rewind() {
            while (!ending) {
                try {
                    var assigned = consumer.assignment();
                    var committed = consumer.committed(assigned, Duration.ofSeconds(10));
                    for (var partition : assigned) {
                        var offset = committed.get(partition);
                        if (offset == null) consumer.seekToBeginning(List.of(partition));
                        else consumer.seek(partition, offset.offset());
                    }
                    return;
                } catch (KafkaException error) {
                    System.out.println(id + ": at the rewind: " + one(error));
                }
            }
        }
    }
}
