import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.*;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.configuration.*;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.*;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.state.*;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A Flink job, its whole cluster in this process: it copies a topic to others, each by an exactly-once sink, every
 * record, a number, to the partition that is left of it by division. Its input tells it what to do, by lines:
 * "hold" (a subtask stands still once a checkpoint is complete and before its transactions are committed; it says
 * "@held"), "fail" (the subtask that is held, else the first that gets a record, throws, and begins again at the newest
 * checkpoint), "stop" (with a savepoint; "@stopped"). It says "@opened SUBTASK ATTEMPT" and "@checkpoint ID" as well.
 * The end of its input ends it.
 * Arguments: bootstrap, folder of checkpoints, checkpoint to begin at or "", the topic, for each copy STRATEGY=TOPIC
 */
public class FlinkCopy {
    static final PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    static final AtomicBoolean holds = new AtomicBoolean(), fails = new AtomicBoolean(), heldFails = new AtomicBoolean();
    static volatile boolean isHeld;

    public static void main(String[] args) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        System.setProperty("org.slf4j.simpleLogger.showDateTime", "true");
        String bootstrap = args[0], folder = args[1], topic = args[3];
        var environment = StreamExecutionEnvironment.createLocalEnvironment(2, config(folder, args[2]));
        environment.enableCheckpointing(500);
        var source = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(topic)
            .setGroupId(topic)
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .setProperty("reconnect.backoff.max.ms", "500")
            .build();
        var records = environment.fromSource(source, WatermarkStrategy.noWatermarks(), "source").uid("source")
            .map(new Watched(folder)).uid("watched");
        for (int at = 4; at < args.length; at++) {
            String[] copy = args[at].split("=");
            records.sinkTo(sink(bootstrap, TransactionNamingStrategy.valueOf(copy[0]), copy[1])).uid(copy[1]).name(copy[1]);
        }
        var job = environment.executeAsync("copy");
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            switch (line) {
                case "hold" -> holds.set(true);
                case "fail" -> (isHeld ? heldFails : fails).set(true);
                case "stop" -> {
                    job.stopWithSavepoint(false, folder + "/savepoints", SavepointFormatType.CANONICAL).get();
                    out.println("@stopped");
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static Configuration config(String folder, String begin) {
        var config = new Configuration();
        config.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        config.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + folder);
        config.set(CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION, ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        config.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        config.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, 1000);
        config.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(100));
        config.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(8));
        config.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.ofMebiBytes(16));
        config.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(16));
        if (!begin.isEmpty()) config.set(StateRecoveryOptions.SAVEPOINT_PATH, begin);
        return config;
    }

    static KafkaSink<String> sink(String bootstrap, TransactionNamingStrategy strategy, String topic) {
        return KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(topic)
            .setTransactionNamingStrategy(strategy)
            // Longer than the test: whatever is left open is not mended by time.
            .setProperty("transaction.timeout.ms", "600000")
            .setProperty("reconnect.backoff.max.ms", "500")
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic(topic)
                .setValueSerializationSchema(new SimpleStringSchema())
                .setPartitioner((String record, byte[] key, byte[] value, String name, int[] partitions) ->
                    partitions[Integer.parseInt(record) % partitions.length])
                .build())
            .build();
    }

    static class Watched extends RichMapFunction<String, String> implements CheckpointedFunction, CheckpointListener {
        final String folder;
        transient Path held;

        Watched(String folder) { this.folder = folder; }

        @Override
        public void open(OpenContext context) {
            var task = getRuntimeContext().getTaskInfo();
            out.println("@opened\t" + task.getIndexOfThisSubtask() + "\t" + task.getAttemptNumber());
        }

        @Override
        public String map(String value) throws Exception {
            if (held != null) {
                // The commit is a mail to this very thread: it is not done before this returns.
                for (int tries = 0; tries < 1000 && !Files.exists(held); tries++) Thread.sleep(10);
                boolean isComplete = Files.exists(held);
                held = null;
                if (isComplete && holds.compareAndSet(true, false)) {
                    isHeld = true;
                    out.println("@held");
                    while (!heldFails.get()) Thread.sleep(10);
                    isHeld = false;
                    heldFails.set(false);
                    throw new IllegalStateException("told to fail before the commit");
                }
            }
            if (fails.compareAndSet(true, false)) throw new IllegalStateException("told to fail");
            return value;
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {
            if (holds.get()) {
                String job = getRuntimeContext().getJobInfo().getJobId().toString();
                held = Path.of(folder, job, "chk-" + context.getCheckpointId(), "_metadata");
            }
        }

        @Override
        public void initializeState(FunctionInitializationContext context) { }

        @Override
        public void notifyCheckpointComplete(long checkpoint) {
            if (getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() == 0) out.println("@checkpoint\t" + checkpoint);
        }
    }
}
