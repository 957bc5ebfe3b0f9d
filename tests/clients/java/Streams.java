import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

/**
 * Kafka Streams counts words: a repartition topic, a RocksDB store with its changelog, an output topic.
 * Prints "state NAME" whenever its state changes; ends when its standard input does.
 * Arguments: bootstrap, application id, input topic, output topic, state folder, guarantee
 */
public class Streams {
    public static void main(String[] args) throws Exception {
        var config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("application.id", args[1]);
        config.put("state.dir", args[4]);
        config.put("processing.guarantee", args[5]);
        config.put("commit.interval.ms", 100);
        config.put("repartition.purge.interval.ms", 200);
        config.put("statestore.cache.max.bytes", 0);
        config.put("replication.factor", 1);
        config.put("num.stream.threads", 1);
        config.put("consumer.auto.offset.reset", "earliest");
        config.put("default.key.serde", Serdes.String().getClass());
        config.put("default.value.serde", Serdes.String().getClass());
        var builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(args[2]);
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(args[3]);
        var streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((now, before) -> {
            System.out.println("state " + now);
            System.out.flush();
        });
        streams.start();
        while (System.in.read() >= 0) { }
        streams.close(new KafkaStreams.CloseOptions().timeout(Duration.ofSeconds(30)).leaveGroup(true));
    }
}
