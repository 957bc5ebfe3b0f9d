// Each method of sarama's ClusterAdmin. Argument: bootstrap.
// Tells a line for each: its name, a tab, and what it returned, or its error.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/IBM/sarama"
)

const topic, group, user = "sarama-admin", "sarama-group", "sarama-user"

// RESOURCE_NOT_FOUND, for which sarama has no name.
const resourceNotFound = 91

func tell(name string, result any, err error) {
	if err != nil {
		fmt.Printf("%s\t%v\n", name, err)
		return
	}
	told, err := json.Marshal(result)
	fmt.Printf("%s\t%s %v\n", name, told, err)
}

func done(name string, err error) { tell(name, "done", err) }

func main() {
	config := sarama.NewConfig()
	config.ClientID = "sarama"
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	client, err := sarama.NewClient([]string{os.Args[1]}, config)
	if err != nil {
		panic(err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		panic(err)
	}
	value := "3600000"
	entries := map[string]*string{"retention.ms": &value}
	detail := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: entries}
	done("CreateTopic", admin.CreateTopic(topic, detail, false))
	done("CreateTopic again", admin.CreateTopic(topic, detail, false))
	done("CreatePartitions", admin.CreatePartitions(topic, 2, nil, false))
	done("CreatePartitions of fewer", admin.CreatePartitions(topic, 1, nil, false))
	// Kafka's broker hears of what its controller took a moment later.
	topics, err := admin.ListTopics()
	for err == nil && topics[topic].NumPartitions != 2 {
		time.Sleep(50 * time.Millisecond)
		topics, err = admin.ListTopics()
	}
	if err == nil {
		found := topics[topic]
		tell("ListTopics", []any{found.NumPartitions, found.ReplicationFactor, found.ConfigEntries["retention.ms"]}, nil)
	} else {
		done("ListTopics", err)
	}
	if err := client.RefreshMetadata(); err != nil {
		panic(err)
	}

	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		panic(err)
	}
	for range 3 {
		message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("a")}
		message.Partition = 0
		_, _, err = producer.SendMessage(message)
		if err != nil {
			panic(err)
		}
	}
	described, err := admin.DescribeTopics([]string{topic, "nowhere"})
	rows := []string{}
	for _, each := range described {
		rows = append(rows, fmt.Sprintf("%s %v %d", each.Name, each.Err, len(each.Partitions)))
	}
	sort.Strings(rows)
	tell("DescribeTopics", rows, err)
	brokers, controller, err := admin.DescribeCluster()
	tell("DescribeCluster", []any{len(brokers), controller}, err)
	found, err := admin.Controller()
	if err == nil {
		tell("Controller", found.ID(), nil)
	} else {
		done("Controller", err)
	}
	_, err = admin.DescribeLogDirs([]int32{controller})
	done("DescribeLogDirs", err)

	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}
	configs, err := admin.DescribeConfig(resource)
	tell("DescribeConfig", configs, err)
	done("AlterConfig", admin.AlterConfig(sarama.TopicResource, topic, entries, false))
	set := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
	}
	done("IncrementalAlterConfig", admin.IncrementalAlterConfig(sarama.TopicResource, topic, set, false))
	wrong := "never"
	set["retention.ms"] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &wrong}
	done("IncrementalAlterConfig to nonsense", admin.IncrementalAlterConfig(sarama.TopicResource, topic, set, false))

	done("AlterPartitionReassignments", admin.AlterPartitionReassignments(topic, [][]int32{{controller}, {controller}}))
	status, err := admin.ListPartitionReassignments(topic, []int32{0, 1})
	tell("ListPartitionReassignments", status, err)
	elected, err := admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic: {0}})
	tell("ElectLeaders", len(elected), err)

	offsets, err := sarama.NewOffsetManagerFromClient(group, client)
	if err != nil {
		panic(err)
	}
	partition, err := offsets.ManagePartition(topic, 0)
	if err != nil {
		panic(err)
	}
	partition.MarkOffset(1, "told")
	offsets.Commit()
	partition.Close()
	offsets.Close()
	groups, err := admin.ListConsumerGroups()
	tell("ListConsumerGroups", groups, err)
	of, err := admin.DescribeConsumerGroups([]string{group})
	if err == nil {
		tell("DescribeConsumerGroups", []any{of[0].State, of[0].ProtocolType, of[0].Err, len(of[0].Members)}, nil)
	} else {
		done("DescribeConsumerGroups", err)
	}
	committed, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}})
	if err == nil {
		block := committed.GetBlock(topic, 0)
		tell("ListConsumerGroupOffsets", []any{block.Offset, block.Metadata, block.Err}, nil)
	} else {
		done("ListConsumerGroupOffsets", err)
	}
	done("DeleteConsumerGroupOffset", admin.DeleteConsumerGroupOffset(group, topic, 0))
	removed, err := admin.RemoveMemberFromConsumerGroup(group, []string{"nobody"})
	if err == nil {
		tell("RemoveMemberFromConsumerGroup", []any{removed.Err, len(removed.Members)}, nil)
	} else {
		done("RemoveMemberFromConsumerGroup", err)
	}
	done("DeleteConsumerGroup", admin.DeleteConsumerGroup(group))
	done("DeleteConsumerGroup again", admin.DeleteConsumerGroup(group))

	who := sarama.Acl{Principal: "User:" + user, Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow}
	what := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: topic, ResourcePatternType: sarama.AclPatternLiteral}
	done("CreateACL", admin.CreateACL(what, who))
	done("CreateACLs", admin.CreateACLs([]*sarama.ResourceAcls{{Resource: what, Acls: []*sarama.Acl{&who}}}))
	filter := sarama.AclFilter{ResourceType: sarama.AclResourceTopic, ResourcePatternTypeFilter: sarama.AclPatternAny, Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny}
	// Kafka's broker hears of what its controller took a moment later.
	var acls []sarama.ResourceAcls
	err = nil
	for deadline := time.Now().Add(time.Minute); len(acls) == 0 && err == nil && time.Now().Before(deadline); {
		acls, err = admin.ListAcls(filter)
	}
	tell("ListAcls", len(acls), err)
	deleted, err := admin.DeleteACL(filter, false)
	tell("DeleteACL", len(deleted), err)

	credential := sarama.AlterUserScramCredentialsUpsert{
		Name: user, Mechanism: sarama.SCRAM_MECHANISM_SHA_512, Iterations: 4096, Salt: []byte("salt"), Password: []byte("secret"),
	}
	upserted, err := admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{credential})
	tell("UpsertUserScramCredentials", upserted, err)
	var credentials []*sarama.DescribeUserScramCredentialsResult
	unknown := true
	err = nil
	for deadline := time.Now().Add(time.Minute); unknown && err == nil && time.Now().Before(deadline); {
		credentials, err = admin.DescribeUserScramCredentials([]string{user})
		unknown = len(credentials) == 1 && credentials[0].ErrorCode == sarama.KError(resourceNotFound)
	}
	tell("DescribeUserScramCredentials", credentials, err)
	gone, err := admin.DeleteUserScramCredentials([]sarama.AlterUserScramCredentialsDelete{{Name: user, Mechanism: sarama.SCRAM_MECHANISM_SHA_512}})
	tell("DeleteUserScramCredentials", gone, err)

	entity := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: user}}
	operation := sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1e6}
	done("AlterClientQuotas", admin.AlterClientQuotas(entity, operation, false))
	var quotas []sarama.DescribeClientQuotasEntry
	err = nil
	for deadline := time.Now().Add(time.Minute); len(quotas) == 0 && err == nil && time.Now().Before(deadline); {
		quotas, err = admin.DescribeClientQuotas([]sarama.QuotaFilterComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Match: user}}, true)
	}
	tell("DescribeClientQuotas", quotas, err)
	operation.Remove = true
	done("AlterClientQuotas away", admin.AlterClientQuotas(entity, operation, false))

	done("DeleteRecords", admin.DeleteRecords(topic, map[int32]int64{0: 0, 1: 0}))
	done("DeleteRecords beyond the end", admin.DeleteRecords(topic, map[int32]int64{0: 1000}))
	done("DeleteTopic", admin.DeleteTopic(topic))
	done("DeleteTopic again", admin.DeleteTopic(topic))
	done("Close", admin.Close())
}
