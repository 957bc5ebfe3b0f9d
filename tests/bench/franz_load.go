// franz-go's part of a turn: produces records as fast as it goes, or reads a topic from its beginning.
// Arguments: bootstrap, topic, "produce" or "consume", how many partitions, how many records.
// Tells how many records it were and how many seconds they took.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const recordBytes, batchBytes = 1024, 16 << 10

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func produce(ctx context.Context, client *kgo.Client, topic string, partitions, records int) {
	value := make([]byte, recordBytes)
	_, err := rand.Read(value)
	check(err)
	var failed atomic.Value
	for n := 0; n < records; n++ {
		record := &kgo.Record{Topic: topic, Partition: int32(n % partitions), Value: value}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(err)
			}
		})
	}
	check(client.Flush(ctx))
	if err := failed.Load(); err != nil {
		check(err.(error))
	}
}

func consume(ctx context.Context, client *kgo.Client, records int) {
	for seen := 0; seen < records; {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		seen += fetches.NumRecords()
	}
}

func main() {
	bootstrap, topic, work := os.Args[1], os.Args[2], os.Args[3]
	partitions, records := number(os.Args[4]), number(os.Args[5])
	from := map[int32]kgo.Offset{}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(batchBytes), kgo.ProducerLinger(5 * time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
	if work == "consume" {
		for n := 0; n < partitions; n++ {
			from[int32(n)] = kgo.NewOffset().AtStart()
		}
		options = append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	check(client.Ping(ctx))
	begun := time.Now()
	if work == "consume" {
		consume(ctx, client, records)
	} else {
		produce(ctx, client, topic, partitions, records)
	}
	fmt.Println(records, time.Since(begun).Seconds())
}
