import java.time.Duration;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Calls each method of Kafka's Admin, and prints "name TAB result", exceptions included. Argument:
 * bootstrap, of a cluster of one broker, whose id is 1. A method that is not called here is printed as
 * "not called".
 */
public class AdminCalls {
    static final TopicPartition PARTITION = new TopicPartition("calls", 0);
    static final TopicPartition UNKNOWN = new TopicPartition("nothing", 0);
    static final ConfigResource TOPIC = new ConfigResource(ConfigResource.Type.TOPIC, "calls");
    static final Map<String, Callable<Object>> calls = new LinkedHashMap<>();

    public static void main(String[] args) throws Exception {
        write(args[0]);
        Map<String, Object> config = Map.of("bootstrap.servers", args[0], "default.api.timeout.ms", 20000,
            "request.timeout.ms", 10000);
        try (Admin admin = Admin.create(config)) {
            topics(admin);
            groups(admin);
            otherGroups(admin);
            cluster(admin);
            transactions(admin);
            security(admin);
            client(admin);
            for (var call : calls.entrySet()) {
                System.out.println(call.getKey() + "\t" + told(call.getValue()).replace("\n", " "));
            }
        }
        var called = new HashSet<String>();
        for (String name : calls.keySet()) called.add(name.split(" ")[0]);
        for (var method : Admin.class.getMethods()) {
            if (Set.of("create", "close").contains(method.getName())) continue;
            if (called.add(method.getName())) System.out.println(method.getName() + "\tnot called");
        }
    }

    static void write(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var names = List.of(new NewTopic("calls", 2, (short) 1), new NewTopic("deleted", 1, (short) 1));
            admin.createTopics(names).all().get();
        }
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "enable.idempotence", false);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int index = 0; index < 5; index++)
                producer.send(new ProducerRecord<>("calls", 0, 1000L + index, "k", "v")).get();
        }
    }

    static void topics(Admin admin) {
        calls.put("listTopics", () -> admin.listTopics().names());
        calls.put("createTopics", () -> admin.createTopics(
            List.of(new NewTopic("made", Optional.of(3), Optional.empty()), new NewTopic("calls", 1, (short) 1))).values());
        calls.put("createTopics with a bad name", () -> admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1))).values());
        calls.put("describeTopics", () -> admin.describeTopics(List.of("calls", "nothing")).topicNameValues());
        calls.put("createPartitions", () -> admin.createPartitions(
            Map.of("made", NewPartitions.increaseTo(5), "calls", NewPartitions.increaseTo(1), "nothing", NewPartitions.increaseTo(2))).values());
        calls.put("deleteTopics", () -> admin.deleteTopics(List.of("deleted", "nothing")).topicNameValues());
        calls.put("listOffsets", () -> admin.listOffsets(Map.of(PARTITION, OffsetSpec.latest())).all());
        calls.put("listOffsets of the newest timestamp", () -> admin.listOffsets(Map.of(PARTITION, OffsetSpec.maxTimestamp())).all());
        calls.put("listOffsets by time", () -> admin.listOffsets(Map.of(PARTITION, OffsetSpec.forTimestamp(1002))).all());
        calls.put("deleteRecords", () -> admin.deleteRecords(
            Map.of(PARTITION, RecordsToDelete.beforeOffset(2))).lowWatermarks().get(PARTITION).get().lowWatermark());
        calls.put("deleteRecords beyond the end", () -> admin.deleteRecords(Map.of(PARTITION, RecordsToDelete.beforeOffset(99))).all());
        calls.put("describeConfigs", () -> entries(admin.describeConfigs(List.of(TOPIC)).all().get().get(TOPIC)));
        calls.put("describeConfigs of nothing", () -> admin.describeConfigs(
            List.of(new ConfigResource(ConfigResource.Type.TOPIC, "nothing"))).values());
        var set = new AlterConfigOp(new ConfigEntry("retention.ms", "5000"), AlterConfigOp.OpType.SET);
        calls.put("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(TOPIC, List.of(set))).values());
        var bad = new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET);
        calls.put("incrementalAlterConfigs to nonsense", () -> admin.incrementalAlterConfigs(Map.of(TOPIC, List.of(bad))).values());
        calls.put("listConfigResources", () -> admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER), new ListConfigResourcesOptions()).all());
        calls.put("describeProducers", () -> admin.describeProducers(List.of(PARTITION)).all());
    }

    static void groups(Admin admin) {
        var offsets = Map.of(PARTITION, new OffsetAndMetadata(3));
        calls.put("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets("group", offsets).all());
        calls.put("listGroups", () -> admin.listGroups().all());
        calls.put("listConsumerGroups", () -> admin.listConsumerGroups().all());
        calls.put("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of("group", "nobody")).describedGroups());
        calls.put("describeClassicGroups", () -> admin.describeClassicGroups(List.of("group", "nobody")).describedGroups());
        calls.put("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets("group").partitionsToOffsetAndMetadata());
        calls.put("removeMembersFromConsumerGroup", () -> admin.removeMembersFromConsumerGroup("group",
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("instance")))).all());
        calls.put("removeMembersFromConsumerGroup of all", () -> admin.removeMembersFromConsumerGroup("group",
            new RemoveMembersFromConsumerGroupOptions()).all());
        calls.put("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets("group", Set.of(PARTITION)).all());
        calls.put("deleteConsumerGroupOffsets of nobody", () -> admin.deleteConsumerGroupOffsets("nobody", Set.of(PARTITION)).all());
        calls.put("alterConsumerGroupOffsets again", () -> admin.alterConsumerGroupOffsets("group", offsets).all());
        calls.put("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("group", "nobody")).deletedGroups());
    }

    static void otherGroups(Admin admin) {
        calls.put("describeShareGroups", () -> admin.describeShareGroups(List.of("shared")).describedGroups());
        calls.put("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets("shared", Map.of(PARTITION, 1L)).all());
        calls.put("listShareGroupOffsets", () -> admin.listShareGroupOffsets(Map.of("shared", new ListShareGroupOffsetsSpec())).all());
        calls.put("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets("shared", Set.of("calls")).all());
        calls.put("deleteShareGroups", () -> admin.deleteShareGroups(List.of("shared")).deletedGroups());
        calls.put("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of("streams")).describedGroups());
        calls.put("listStreamsGroupOffsets", () -> admin.listStreamsGroupOffsets(Map.of("streams", new ListStreamsGroupOffsetsSpec())).all());
        calls.put("alterStreamsGroupOffsets", () -> admin.alterStreamsGroupOffsets("streams", Map.of(PARTITION, new OffsetAndMetadata(1))).all());
        calls.put("deleteStreamsGroupOffsets", () -> admin.deleteStreamsGroupOffsets("streams", Set.of(PARTITION)).all());
        calls.put("deleteStreamsGroups", () -> admin.deleteStreamsGroups(List.of("nobody")).deletedGroups());
    }

    static void cluster(Admin admin) {
        calls.put("describeCluster", () -> {
            var told = admin.describeCluster();
            return Map.of("nodes", told.nodes(), "controller", told.controller(), "operations", told.authorizedOperations());
        });
        calls.put("describeFeatures", () -> {
            var told = admin.describeFeatures().featureMetadata().get();
            return Map.of("finalized", told.finalizedFeatures(), "supported", told.supportedFeatures());
        });
        calls.put("updateFeatures", () -> admin.updateFeatures(
            Map.of("transaction.version", new FeatureUpdate((short) 2, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).values());
        calls.put("updateFeatures of an unknown one", () -> admin.updateFeatures(
            Map.of("nothing.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).values());
        calls.put("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo());
        calls.put("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(PARTITION, UNKNOWN)).partitions());
        calls.put("electLeaders of all", () -> admin.electLeaders(ElectionType.PREFERRED, null).partitions());
        calls.put("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments());
        calls.put("alterPartitionReassignments", () -> admin.alterPartitionReassignments(
            Map.of(PARTITION, Optional.of(new NewPartitionReassignment(List.of(1))), UNKNOWN, Optional.empty())).values());
        calls.put("alterPartitionReassignments to a stranger", () -> admin.alterPartitionReassignments(
            Map.of(PARTITION, Optional.of(new NewPartitionReassignment(List.of(7))))).values());
        calls.put("alterPartitionReassignments back", () -> admin.alterPartitionReassignments(Map.of(PARTITION, Optional.empty())).values());
        calls.put("describeLogDirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().iterator().next()
            .replicaInfos().get(PARTITION).offsetLag());
        var replica = new TopicPartitionReplica("calls", 0, 1);
        calls.put("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaOffsetLag());
        calls.put("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(Map.of(replica, "/elsewhere")).values());
        calls.put("unregisterBroker", () -> admin.unregisterBroker(7).all());
        calls.put("addRaftVoter", () -> admin.addRaftVoter(7, Uuid.ONE_UUID, Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 9))).all());
        calls.put("removeRaftVoter", () -> admin.removeRaftVoter(7, Uuid.ONE_UUID).all());
    }

    static void transactions(Admin admin) {
        calls.put("listTransactions", () -> admin.listTransactions().all());
        calls.put("describeTransactions", () -> admin.describeTransactions(List.of("nobody")).all());
        calls.put("abortTransaction", () -> admin.abortTransaction(new AbortTransactionSpec(PARTITION, 77, (short) 0, -1)).all());
        calls.put("fenceProducers", () -> admin.fenceProducers(List.of("fenced")).all());
        calls.put("forceTerminateTransaction", () -> admin.forceTerminateTransaction("fenced", new TerminateTransactionOptions()).result());
    }

    static void security(Admin admin) {
        var pattern = new ResourcePattern(ResourceType.TOPIC, "calls", PatternType.LITERAL);
        var entry = new AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW);
        calls.put("createAcls", () -> admin.createAcls(List.of(new AclBinding(pattern, entry))).values());
        calls.put("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values());
        calls.put("deleteAcls", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).values());
        calls.put("createDelegationToken", () -> admin.createDelegationToken().delegationToken());
        calls.put("renewDelegationToken", () -> admin.renewDelegationToken(new byte[] {1}).expiryTimestamp());
        calls.put("expireDelegationToken", () -> admin.expireDelegationToken(new byte[] {1}).expiryTimestamp());
        calls.put("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens());
        var scram = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        calls.put("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("alice", scram, "secret"), new UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512))).values());
        calls.put("describeUserScramCredentials", () -> admin.describeUserScramCredentials(List.of("alice", "bob")).description("bob"));
        var user = new ClientQuotaEntity(Map.of("user", "alice"));
        calls.put("alterClientQuotas", () -> admin.alterClientQuotas(List.of(
            new ClientQuotaAlteration(user, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1000.0))))).values());
        calls.put("describeClientQuotas", () -> quotas(admin));
    }

    /** Kafka's broker hears of them a moment after its controller has answered. */
    static KafkaFuture<Map<ClientQuotaEntity, Map<String, Double>>> quotas(Admin admin) throws Exception {
        for (int round = 0; round < 100; round++) {
            if (!admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().isEmpty()) break;
            Thread.sleep(100);
        }
        return admin.describeClientQuotas(ClientQuotaFilter.all()).entities();
    }

    static void client(Admin admin) {
        calls.put("listClientMetricsResources", () -> admin.listClientMetricsResources().all());
        calls.put("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(5)).getClass());
        calls.put("metrics", () -> admin.metrics().isEmpty());
        calls.put("registerMetricForSubscription", () -> { admin.registerMetricForSubscription(null); return "done"; });
        calls.put("unregisterMetricFromSubscription", () -> { admin.unregisterMetricFromSubscription(null); return "done"; });
    }

    static List<String> entries(Config config) {
        var found = new ArrayList<String>();
        for (ConfigEntry entry : config.entries()) {
            found.add(entry.name() + "=" + entry.value() + " " + entry.type() + (entry.isReadOnly() ? " read-only" : ""));
        }
        return found;
    }

    static String told(Callable<Object> call) {
        try {
            return shown(call.call());
        } catch (Exception error) {
            return failure(error);
        }
    }

    static String failure(Throwable error) {
        while (error instanceof ExecutionException && error.getCause() != null) error = error.getCause();
        return error.getClass().getSimpleName() + ": " + error.getMessage();
    }

    static String shown(Object value) {
        if (value instanceof KafkaFuture<?> future) return told(future::get);
        var found = new ArrayList<String>();
        if (value instanceof Map<?, ?> map) {
            map.forEach((key, each) -> found.add(key + ": " + shown(each)));
        } else if (value instanceof Collection<?> all) {
            all.forEach(each -> found.add(shown(each)));
        } else {
            return value instanceof Optional<?> some && some.isPresent() ? shown(some.get()) : String.valueOf(value);
        }
        Collections.sort(found);
        return found.toString();
    }
}
