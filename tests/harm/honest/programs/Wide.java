import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Function;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Ten thousand partitions by Kafka's own Java client, all settings its own but for auto.offset.reset.
 * Arguments: bootstrap topics partitions. Tells "@step seconds" of each step.
 */
public class Wide {
    static final int MEMBERS = 3;
    static final long LONG_S = 60;
    static String bootstrap;
    static List<String> topics;
    static List<TopicPartition> places;
    static int partitions;
    static Admin admin;

    interface Step { void run() throws Exception; }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        partitions = Integer.parseInt(args[2]);
        topics = IntStream.range(0, Integer.parseInt(args[1])).mapToObj(i -> "java-" + i).toList();
        places = topics.stream().flatMap(topic -> IntStream.range(0, partitions).mapToObj(i -> new TopicPartition(topic, i))).toList();
        try (var made = Admin.create(config())) {
            admin = made;
            step("create", () -> admin.createTopics(topics.stream().map(topic -> new NewTopic(topic, partitions, (short) 1)).toList()).all().get());
            step("list", () -> check(admin.listTopics().names().get().containsAll(topics), "topics are listed"));
            step("describe", Wide::describe);
            step("produce", Wide::produce);
            step("read_alone", () -> read("java-alone", 1));
            step("offsets_by_time", Wide::offsetsByTime);
            step("committed", Wide::committed);
            step("read_together", () -> read("java-together", MEMBERS));
            step("describe_group", Wide::describeGroup);
            step("transaction", Wide::transaction);
            step("delete", Wide::delete);
        }
    }

    static void step(String name, Step step) throws Exception {
        long begun = System.nanoTime();
        step.run();
        System.out.printf("@%s %.2f%n", name, (System.nanoTime() - begun) / 1e9);
    }

    static void check(boolean right, String what) {
        if (!right) throw new AssertionError(what);
    }

    static Map<String, Object> config() {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        return config;
    }

    static KafkaConsumer<String, String> consumer(String group) {
        var config = config();
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static void describe() throws Exception {
        for (var found : admin.describeTopics(topics).allTopicNames().get().values())
            check(found.partitions().size() == partitions, "all partitions of " + found.name());
    }

    static void produce() throws Exception {
        try (var producer = new KafkaProducer<>(config(), new StringSerializer(), new StringSerializer())) {
            send(producer, places);
        }
    }

    static void send(KafkaProducer<String, String> producer, List<TopicPartition> places) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (var place : places)
            sent.add(producer.send(new ProducerRecord<>(place.topic(), place.partition(), null, place.toString())));
        for (var future : sent) future.get();
    }

    /** One transaction over a thousand partitions. */
    static void transaction() throws Exception {
        var config = config();
        config.put("transactional.id", "wide");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, places.subList(0, Math.min(1000, places.size())));
            producer.commitTransaction();
        }
    }

    /** Each member has a thread; they end when every record was read, with a commit of all. */
    static void read(String group, int members) throws Exception {
        Set<TopicPartition> left = ConcurrentHashMap.newKeySet();
        left.addAll(places);
        var threads = Executors.newFixedThreadPool(members);
        List<Future<?>> running = new ArrayList<>();
        for (int i = 0; i < members; i++) running.add(threads.submit(() -> readUntil(group, left)));
        for (var each : running) each.get();
        threads.shutdown();
    }

    static Void readUntil(String group, Set<TopicPartition> left) {
        long due = System.nanoTime() + LONG_S * 1_000_000_000L;
        try (var consumer = consumer(group)) {
            consumer.subscribe(topics);
            while (!left.isEmpty()) {
                check(System.nanoTime() < due, left.size() + " records were not read");
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    var place = new TopicPartition(record.topic(), record.partition());
                    check(record.value().equals(place.toString()), "the value of " + place);
                    left.remove(place);
                }
            }
            consumer.commitSync();
        }
        return null;
    }

    static void offsetsByTime() throws Exception {
        try (var consumer = consumer("java-alone")) {
            var found = consumer.offsetsForTimes(places.stream().collect(Collectors.toMap(Function.identity(), place -> 1L)));
            check(found.values().stream().allMatch(each -> each != null && each.offset() == 0), "offsets by time");
            check(consumer.endOffsets(places).values().stream().allMatch(each -> each == 1), "ends");
        }
        var asked = places.stream().collect(Collectors.toMap(Function.identity(), place -> OffsetSpec.maxTimestamp()));
        check(admin.listOffsets(asked).all().get().values().stream().allMatch(each -> each.offset() == 0), "newest");
    }

    static void committed() {
        try (var consumer = consumer("java-alone")) {
            var found = consumer.committed(new HashSet<>(places));
            check(found.values().stream().allMatch(each -> each != null && each.offset() == 1), "all are committed");
        }
    }

    static void describeGroup() throws Exception {
        check(admin.describeConsumerGroups(List.of("java-alone", "java-together")).all().get().size() == 2, "groups");
        check(admin.listConsumerGroupOffsets("java-together").partitionsToOffsetAndMetadata().get().size() == places.size(), "offsets");
    }

    static void delete() throws Exception {
        admin.deleteTopics(topics).all().get();
        admin.deleteConsumerGroups(List.of("java-alone", "java-together")).all().get();
        check(Collections.disjoint(admin.listTopics().names().get(), topics), "topics are gone");
    }
}
