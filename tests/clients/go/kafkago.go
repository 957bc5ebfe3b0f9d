// segmentio's kafka-go writes records, reads them back, and reads them in a group that commits.
// Arguments: bootstrap topic. Tells "@" and what became of each step, in a line.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

const records = 10

func write(ctx context.Context, bootstrap, topic string) error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(bootstrap), Topic: topic, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 10 * time.Millisecond, Compression: kafka.Zstd,
	}
	defer writer.Close()
	messages := make([]kafka.Message, records)
	for index := range messages {
		messages[index] = kafka.Message{Key: []byte("k"), Value: []byte(fmt.Sprint(index))}
	}
	return writer.WriteMessages(ctx, messages...)
}

func all(ctx context.Context, take func(context.Context) (kafka.Message, error)) error {
	for index := range records {
		message, err := take(ctx)
		if err != nil {
			return err
		}
		if string(message.Value) != fmt.Sprint(index) {
			return fmt.Errorf("%s came instead of %d", message.Value, index)
		}
	}
	return nil
}

func read(ctx context.Context, bootstrap, topic string) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, Topic: topic, MaxWait: 100 * time.Millisecond,
	})
	defer reader.Close()
	return all(ctx, reader.ReadMessage)
}

func group(ctx context.Context, bootstrap, topic string) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, Topic: topic, GroupID: "kafka-go", StartOffset: kafka.FirstOffset,
		MaxWait: 100 * time.Millisecond,
	})
	// ReadMessage commits in a group, at once.
	if err := all(ctx, reader.ReadMessage); err != nil {
		return err
	}
	if err := reader.Close(); err != nil {
		return err
	}
	client := &kafka.Client{Addr: kafka.TCP(bootstrap)}
	asked := &kafka.OffsetFetchRequest{GroupID: "kafka-go", Topics: map[string][]int{topic: {0}}}
	answer, err := client.OffsetFetch(ctx, asked)
	if err != nil {
		return err
	}
	if committed := answer.Topics[topic][0].CommittedOffset; committed != records {
		return fmt.Errorf("%d is committed", committed)
	}
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, step := range []func(context.Context, string, string) error{write, read, group} {
		if err := step(ctx, os.Args[1], os.Args[2]); err != nil {
			fmt.Printf("@%q\n", err.Error())
		} else {
			fmt.Println("@ok")
		}
	}
}
