// Methods of franz-go's admin client, kadm. Argument: bootstrap.
// Tells a line for each: its name, a tab, and what it returned, or its error.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const topic, group, user = "franz-admin", "franz-group", "franz-user"

func tell(name string, result any, err error) {
	if err != nil {
		fmt.Printf("%s\t%v\n", name, err)
		return
	}
	told, err := json.Marshal(result)
	fmt.Printf("%s\t%s %v\n", name, told, err)
}

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.ClientID("franz-go"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()

	hour := "3600000"
	created, err := admin.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": &hour}, topic)
	tell("CreateTopic", []any{created.NumPartitions, created.ReplicationFactor}, err)
	_, err = admin.CreateTopic(ctx, 1, 1, nil, topic)
	tell("CreateTopic again", "", err)
	validated, err := admin.ValidateCreateTopics(ctx, 3, 1, nil, "franz-validated")
	tell("ValidateCreateTopics", len(validated), err)
	more, err := admin.UpdatePartitions(ctx, 2, topic)
	tell("UpdatePartitions", len(more), err)
	tell("UpdatePartitions error", more.Error(), nil)
	for range 3 {
		record := &kgo.Record{Topic: topic, Partition: 0, Value: []byte("a")}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			panic(err)
		}
	}
	// Kafka's broker hears of what its controller took a moment later.
	topics, err := admin.ListTopics(ctx, topic)
	for err == nil && len(topics[topic].Partitions) != 2 {
		time.Sleep(50 * time.Millisecond)
		topics, err = admin.ListTopics(ctx, topic)
	}
	tell("ListTopics", []any{len(topics), len(topics[topic].Partitions)}, err)
	metadata, err := admin.Metadata(ctx, topic)
	tell("Metadata", []any{metadata.Controller, metadata.Brokers.NodeIDs()}, err)
	brokers, err := admin.ListBrokers(ctx)
	tell("ListBrokers", brokers.NodeIDs(), err)
	for name, listed := range map[string]func(context.Context, ...string) (kadm.ListedOffsets, error){
		"ListStartOffsets": admin.ListStartOffsets, "ListEndOffsets": admin.ListEndOffsets,
		"ListCommittedOffsets": admin.ListCommittedOffsets, "ListMaxTimestampOffsets": admin.ListMaxTimestampOffsets,
	} {
		offsets, err := listed(ctx, topic)
		rows := []string{}
		offsets.Each(func(each kadm.ListedOffset) { rows = append(rows, fmt.Sprint(each.Partition, each.Offset, each.Err)) })
		sort.Strings(rows)
		tell(name, rows, err)
	}
	after, err := admin.ListOffsetsAfterMilli(ctx, 0, topic)
	first, _ := after.Lookup(topic, 0)
	tell("ListOffsetsAfterMilli", first.Offset, err)

	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	told := ""
	for _, each := range configs {
		for _, config := range each.Configs {
			if config.Key == "retention.ms" {
				told = fmt.Sprint(config.MaybeValue(), config.Source)
			}
		}
	}
	tell("DescribeTopicConfigs", told, err)
	_, err = admin.DescribeBrokerConfigs(ctx, 1)
	tell("DescribeBrokerConfigs", "", err)
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &hour}}, topic)
	tell("AlterTopicConfigs", []any{len(altered), altered[0].Err}, err)
	altered, err = admin.ValidateAlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &hour}}, topic)
	tell("ValidateAlterTopicConfigs", []any{len(altered), altered[0].Err}, err)
	altered, err = admin.AlterTopicConfigsState(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &hour}}, topic)
	tell("AlterTopicConfigsState", []any{len(altered), altered[0].Err}, err)
	altered, err = admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "broker.id", Value: &hour}}, 1)
	tell("AlterBrokerConfigs of one that is read-only", altered[0].Err != nil, err)

	dirs, err := admin.DescribeAllLogDirs(ctx, nil)
	tell("DescribeAllLogDirs", len(dirs), err)
	elected, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{topic: {0: {}}})
	tell("ElectLeaders", elected[topic][0].Err, err)
	moved, err := admin.ListPartitionReassignments(ctx, kadm.TopicsSet{topic: {0: {}}})
	tell("ListPartitionReassignments", len(moved), err)
	producers, err := admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {0: {}}})
	tell("DescribeProducers", len(producers[topic].Partitions[0].ActiveProducers), err)
	transactions, err := admin.ListTransactions(ctx, nil, nil)
	tell("ListTransactions", len(transactions), err)
	_, err = admin.ApiVersions(ctx)
	tell("ApiVersions", "", err)

	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 2, -1)
	committed, err := admin.CommitOffsets(ctx, group, offsets)
	tell("CommitOffsets", committed.Ok(), err)
	fetched, err := admin.FetchOffsets(ctx, group)
	row, _ := fetched.Lookup(topic, 0)
	tell("FetchOffsets", []any{row.At, row.Err}, err)
	groups, err := admin.ListGroups(ctx)
	tell("ListGroups", []any{groups[group].State, groups[group].ProtocolType}, err)
	described, err := admin.DescribeGroups(ctx, group)
	tell("DescribeGroups", []any{described[group].State, len(described[group].Members), described[group].Err}, err)
	lags, err := admin.Lag(ctx, group)
	tell("Lag", lags[group].Lag.Total(), err)
	coordinators := admin.FindGroupCoordinators(ctx, group)
	tell("FindGroupCoordinators", coordinators[group].NodeID, coordinators.Error())
	away, err := admin.DeleteOffsets(ctx, group, kadm.TopicsSet{topic: {0: {}}})
	tell("DeleteOffsets", []any{len(away), away.Error()}, err)
	_, err = admin.DeleteGroup(ctx, group)
	tell("DeleteGroup", "", err)
	_, err = admin.DeleteGroup(ctx, group)
	tell("DeleteGroup again", "", err)

	acls := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead).Allow("User:" + user).AllowHosts("*")
	made, err := admin.CreateACLs(ctx, acls)
	tell("CreateACLs", len(made), err)
	count := 0
	for count == 0 && err == nil {
		var listed kadm.DescribeACLsResults
		listed, err = admin.DescribeACLs(ctx, acls)
		for _, each := range listed {
			count += len(each.Described)
		}
	}
	tell("DescribeACLs", count, err)
	dropped, err := admin.DeleteACLs(ctx, acls)
	tell("DeleteACLs", len(dropped), err)

	upsert := kadm.UpsertSCRAM{User: user, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "secret"}
	scrams, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{upsert})
	tell("AlterUserSCRAMs", scrams[user].Err, err)
	var known kadm.DescribedUserSCRAMs
	for len(known[user].CredInfos) == 0 && err == nil {
		known, err = admin.DescribeUserSCRAMs(ctx, user)
	}
	tell("DescribeUserSCRAMs", known[user].CredInfos, err)
	scrams, err = admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: user, Mechanism: kadm.ScramSha512}}, nil)
	tell("AlterUserSCRAMs away", scrams[user].Err, err)

	name := user
	entity := kadm.ClientQuotaEntity{{Type: "user", Name: &name}}
	set := []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: 1e6}}}}
	quotas, err := admin.AlterClientQuotas(ctx, set)
	tell("AlterClientQuotas", quotas[0].Err, err)
	var found []kadm.DescribedClientQuota
	for len(found) == 0 && err == nil {
		found, err = admin.DescribeClientQuotas(ctx, true, []kadm.DescribeClientQuotaComponent{{Type: "user", MatchName: &name, MatchType: kmsg.QuotasMatchTypeExact}})
	}
	tell("DescribeClientQuotas", found, err)
	set[0].Ops[0].Remove = true
	quotas, err = admin.AlterClientQuotas(ctx, set)
	tell("AlterClientQuotas away", quotas[0].Err, err)

	deleted, err := admin.DeleteRecords(ctx, offsetsOf(2))
	tell("DeleteRecords", deleted[topic][0].LowWatermark, err)
	deleted, err = admin.DeleteRecords(ctx, offsetsOf(1000))
	tell("DeleteRecords beyond the end", deleted[topic][0].Err == kerr.OffsetOutOfRange, err)
	_, err = admin.DeleteTopic(ctx, topic)
	tell("DeleteTopic", "", err)
	_, err = admin.DeleteTopic(ctx, topic)
	tell("DeleteTopic again", "", err)
}

func offsetsOf(at int64) kadm.Offsets {
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, at, -1)
	return offsets
}
