import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Group members of Kafka's own Java client, told what to do by lines of words between tabs:
 * "open name subscription key=value…" (a subscription is topics between commas, or ~ and a pattern that
 * the broker resolves, or = and a topic whose partitions are assigned by hand), "commit name [topic partition offset]…", "close name". What happens is told by
 * lines that begin with @: see tests/clients/members.py. The end of the input ends everything.
 */
public class Members {
    static final Map<String, Member> members = new ConcurrentHashMap<>();
    static final PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split("\t");
            if (words[0].equals("open")) {
                Member member = new Member(words[1], words[2], Arrays.copyOfRange(words, 3, words.length));
                members.put(words[1], member);
                Thread thread = new Thread(member, words[1]);
                thread.setDaemon(true);
                thread.start();
            } else {
                members.get(words[1]).asked.add(words);
            }
        }
        System.exit(0);
    }

    static void tell(String... words) {
        synchronized (out) { out.println("@" + String.join("\t", words)); }
    }

    static String places(Collection<TopicPartition> partitions) {
        return partitions.stream().map(p -> p.topic() + "/" + p.partition()).collect(Collectors.joining(","));
    }

    static class Member implements Runnable, ConsumerRebalanceListener {
        final Queue<String[]> asked = new ConcurrentLinkedQueue<>();
        final String name, subscription;
        final Map<String, Object> config = new HashMap<>();
        KafkaConsumer<String, String> consumer;
        String identity = "";

        Member(String name, String subscription, String[] settings) {
            this.name = name;
            this.subscription = subscription;
            for (String setting : settings) {
                int at = setting.indexOf('=');
                config.put(setting.substring(0, at), setting.substring(at + 1));
            }
        }

        public void run() {
            try {
                consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
                if (subscription.startsWith("=")) consumer.assign(partitions(subscription.substring(1)));
                else if (subscription.startsWith("~")) consumer.subscribe(new SubscriptionPattern(subscription.substring(1)), this);
                else consumer.subscribe(List.of(subscription.split(",")), this);
                while (true) {
                    for (var record : consumer.poll(Duration.ofMillis(50)))
                        tell("record", name, record.topic(), "" + record.partition(), "" + record.offset(), record.value());
                    tellIdentity();
                    for (String[] words; (words = asked.poll()) != null; ) {
                        if (words[0].equals("close")) {
                            consumer.close();
                            tell("done", name);
                            return;
                        }
                        commit(words);
                    }
                }
            } catch (Throwable error) {
                tell("error", name, error.toString().replaceAll("\\s+", " "));
                tell("failed", name, "the member has ended");
            }
        }

        List<TopicPartition> partitions(String topic) {
            return consumer.partitionsFor(topic).stream().map(p -> new TopicPartition(topic, p.partition())).toList();
        }

        void commit(String[] words) {
            try {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (int at = 2; at < words.length; at += 3)
                    offsets.put(new TopicPartition(words[at], Integer.parseInt(words[at + 1])), new OffsetAndMetadata(Long.parseLong(words[at + 2])));
                if (offsets.isEmpty()) consumer.commitSync(Duration.ofSeconds(20));
                else consumer.commitSync(offsets, Duration.ofSeconds(20));
                tell("done", name);
            } catch (RuntimeException error) {
                tell("failed", name, error.toString().replaceAll("\\s+", " "));
            }
        }

        void tellIdentity() {
            var metadata = consumer.groupMetadata();
            String now = metadata.memberId() + "\t" + metadata.generationId();
            if (!now.equals(identity)) tell("identity", name, identity = now);
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            // First who it is: whoever hears of the partitions may ask about the member at once.
            tellIdentity();
            tell("assigned", name, places(partitions));
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) { tell("revoked", name, places(partitions)); }

        public void onPartitionsLost(Collection<TopicPartition> partitions) { tell("lost", name, places(partitions)); }
    }
}
