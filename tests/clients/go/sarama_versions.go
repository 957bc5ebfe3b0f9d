// sarama, told that its cluster is of some version of Kafka: it speaks the protocol of then.
// It writes records, reads them back, and reads them in a group that commits.
// Arguments: bootstrap topic, and versions. Tells "@", a version and what became of it, in a line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

const (
	records  = 10
	patience = 30 * time.Second
)

func settings(version sarama.KafkaVersion) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "sarama"
	config.Version = version
	config.ApiVersionsRequest = false
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Return.Errors = true
	return config
}

func write(client sarama.Client, topic, version string) error {
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	for index := range records {
		record := &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(version),
			Value:   sarama.StringEncoder(fmt.Sprint(index)),
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte(version)}},
		}
		if _, _, err := producer.SendMessage(record); err != nil {
			return err
		}
	}
	return nil
}

// Takes records until all of a version have come, in order.
type reader struct {
	version string
	next    int
}

func (r *reader) take(record *sarama.ConsumerMessage) (bool, error) {
	if string(record.Key) != r.version {
		return false, nil
	}
	if string(record.Value) != fmt.Sprint(r.next) {
		return false, fmt.Errorf("%s came instead of %d", record.Value, r.next)
	}
	if len(record.Headers) != 1 || string(record.Headers[0].Value) != r.version {
		return false, errors.New("headers were lost")
	}
	r.next++
	return r.next == records, nil
}

func read(client sarama.Client, topic, version string) error {
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	reader, late := reader{version: version}, time.After(patience)
	for {
		select {
		case record := <-partition.Messages():
			if all, err := reader.take(record); all || err != nil {
				return err
			}
		case err := <-partition.Errors():
			return err
		case <-late:
			return fmt.Errorf("only %d were read", reader.next)
		}
	}
}

type member struct {
	reader
	err error
	end context.CancelFunc
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record := <-claim.Messages():
			if record == nil {
				return nil
			}
			all, err := m.take(record)
			session.MarkMessage(record, "")
			if all || err != nil {
				session.Commit()
				m.err = err
				m.end()
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func group(client sarama.Client, topic, version string) error {
	name := "sarama-" + version
	members, err := sarama.NewConsumerGroupFromClient(name, client)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	one := &member{reader: reader{version: version}, end: cancel}
	for ctx.Err() == nil {
		if err := members.Consume(ctx, []string{topic}, one); err != nil {
			return err
		}
	}
	if one.err == nil && one.next < records {
		one.err = fmt.Errorf("only %d were read in the group", one.next)
	}
	if err := errors.Join(one.err, members.Close()); err != nil {
		return err
	}
	offsets, err := sarama.NewOffsetManagerFromClient(name, client)
	if err != nil {
		return err
	}
	defer offsets.Close()
	partition, err := offsets.ManagePartition(topic, 0)
	if err != nil {
		return err
	}
	defer partition.Close()
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	if err != nil {
		return err
	}
	if committed, _ := partition.NextOffset(); committed != end {
		return fmt.Errorf("%d is committed, and the log ends at %d", committed, end)
	}
	return nil
}

func attempt(bootstrap, topic, version string) error {
	parsed, err := sarama.ParseKafkaVersion(version)
	if err != nil {
		return err
	}
	client, err := sarama.NewClient([]string{bootstrap}, settings(parsed))
	if err != nil {
		return err
	}
	defer client.Close()
	for _, step := range []func(sarama.Client, string, string) error{write, read, group} {
		if err := step(client, topic, version); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	for _, version := range os.Args[3:] {
		if err := attempt(os.Args[1], os.Args[2], version); err != nil {
			fmt.Printf("@%s %q\n", version, err.Error())
		} else {
			fmt.Printf("@%s ok\n", version)
		}
	}
}
