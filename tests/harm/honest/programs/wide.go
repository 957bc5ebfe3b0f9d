// Ten thousand partitions by franz-go, all settings its own but for where a group begins.
// Arguments: bootstrap topics partitions. Tells "@step seconds" of each step.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type place struct {
	topic     string
	partition int32
}

const members = 3

var (
	bootstrap  string
	topics     []string
	partitions int32
	places     []place
	client     *kgo.Client
)

func check(right bool, what ...any) {
	if !right {
		fmt.Println(what...)
		os.Exit(1)
	}
}

func sound(err error) { check(err == nil, "error:", err) }

func right(code int16) { sound(kerr.ErrorForCode(code)) }

func open(more ...kgo.Opt) *kgo.Client {
	logged := kgo.BasicLogger(os.Stdout, kgo.LogLevelWarn, nil)
	made, err := kgo.NewClient(append(more, kgo.SeedBrokers(bootstrap), kgo.WithLogger(logged))...)
	sound(err)
	return made
}

func within() context.Context {
	ctx, _ := context.WithTimeout(context.Background(), 60*time.Second)
	return ctx
}

func step(name string, do func()) {
	begun := time.Now()
	do()
	fmt.Printf("@%s %.2f\n", name, time.Since(begun).Seconds())
}

func create() {
	request := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range topics {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
		request.Topics = append(request.Topics, topic)
	}
	request.TimeoutMillis = 30_000
	answer, err := request.RequestWith(within(), client)
	sound(err)
	for _, topic := range answer.Topics {
		right(topic.ErrorCode)
	}
}

func describe() {
	request := kmsg.NewPtrMetadataRequest()
	answer, err := request.RequestWith(within(), client)
	sound(err)
	count := 0
	for _, topic := range answer.Topics {
		right(topic.ErrorCode)
		for _, name := range topics {
			if topic.Topic != nil && name == *topic.Topic {
				count += len(topic.Partitions)
			}
		}
	}
	check(count == len(places), "described", count)
}

func produce() {
	producer := open(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	var failed error
	var once sync.Once
	for _, at := range places {
		record := &kgo.Record{Topic: at.topic, Partition: at.partition, Value: []byte(fmt.Sprint(at))}
		producer.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	sound(producer.Flush(within()))
	sound(failed)
}

// Every record is read by a group of so many members, and all is committed.
func read(group string, count int) {
	var lock sync.Mutex
	left := map[place]bool{}
	for _, at := range places {
		left[at] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range count {
		all.Add(1)
		go func() {
			defer all.Done()
			consumer := open(
				kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			defer consumer.Close()
			for done := false; !done; {
				pause, stop := context.WithTimeout(ctx, 100*time.Millisecond)
				fetches := consumer.PollFetches(pause)
				stop()
				lock.Lock()
				fetches.EachRecord(func(record *kgo.Record) {
					at := place{record.Topic, record.Partition}
					check(string(record.Value) == fmt.Sprint(at), "the value of", at)
					delete(left, at)
				})
				done = len(left) == 0
				check(ctx.Err() == nil, len(left), "records were not read")
				lock.Unlock()
			}
			sound(consumer.CommitUncommittedOffsets(within()))
		}()
	}
	all.Wait()
}

func offsetsByTime() {
	request := kmsg.NewPtrListOffsetsRequest()
	for _, name := range topics {
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = name
		for index := range partitions {
			asked := kmsg.NewListOffsetsRequestTopicPartition()
			asked.Partition, asked.Timestamp = index, 1
			topic.Partitions = append(topic.Partitions, asked)
		}
		request.Topics = append(request.Topics, topic)
	}
	count := 0
	for _, shard := range client.RequestSharded(within(), request) {
		sound(shard.Err)
		for _, topic := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, found := range topic.Partitions {
				right(found.ErrorCode)
				if found.Offset == 0 {
					count++
				}
			}
		}
	}
	check(count == len(places), "found by time", count)
}

// By group: how many partitions have the offset 1.
func committed(group string) {
	request := kmsg.NewPtrOffsetFetchRequest()
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group = group
	request.Group = group
	request.Groups = append(request.Groups, asked)
	answer, err := request.RequestWith(within(), client)
	sound(err)
	count := 0
	for _, found := range answer.Groups {
		right(found.ErrorCode)
		for _, topic := range found.Topics {
			for _, partition := range topic.Partitions {
				right(partition.ErrorCode)
				if partition.Offset == 1 {
					count++
				}
			}
		}
	}
	check(count == len(places), group, "has committed", count)
}

func describeGroup() {
	request := kmsg.NewPtrDescribeGroupsRequest()
	request.Groups = []string{"go-alone", "go-together"}
	for _, shard := range client.RequestSharded(within(), request) {
		sound(shard.Err)
		for _, group := range shard.Resp.(*kmsg.DescribeGroupsResponse).Groups {
			right(group.ErrorCode)
		}
	}
	committed("go-together")
}

func remove() {
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TimeoutMillis = 30_000
	for _, name := range topics {
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	request.TopicNames = topics
	answer, err := request.RequestWith(within(), client)
	sound(err)
	for _, topic := range answer.Topics {
		right(topic.ErrorCode)
	}
}

func main() {
	bootstrap = os.Args[1]
	count, _ := strconv.Atoi(os.Args[2])
	each, _ := strconv.Atoi(os.Args[3])
	partitions = int32(each)
	for number := range count {
		name := "go-" + strconv.Itoa(number)
		topics = append(topics, name)
		for index := range partitions {
			places = append(places, place{name, index})
		}
	}
	client = open()
	defer client.Close()
	step("create", create)
	step("describe", describe)
	step("produce", produce)
	step("read_alone", func() { read("go-alone", 1) })
	step("offsets_by_time", offsetsByTime)
	step("committed", func() { committed("go-alone") })
	step("read_together", func() { read("go-together", members) })
	step("describe_group", describeGroup)
	step("delete", remove)
}
