// sarama logs in over TLS, writes a record and reads it back.
// Arguments: bootstrap authority topic, and mechanism user password, as often as wanted; of OAUTHBEARER
// the password is a token.
// Tells "@" and what became of each, in a line.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// What sarama leaves to its users: a conversation of SCRAM.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authorizationID string) error {
	client, err := c.hash.NewClient(user, password, authorizationID)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

// As sarama has it of a user of OAUTHBEARER.
type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func settings(roots *x509.CertPool, mechanism, user, password string) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "sarama"
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: roots}
	config.Net.SASL.Enable = true
	config.Net.SASL.Version = sarama.SASLHandshakeV1
	config.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = user, password
	config.Net.SASL.TokenProvider = token(password)
	hash := scram.SHA512
	if mechanism == "SCRAM-SHA-256" {
		hash = scram.SHA256
	}
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
		return &conversation{hash: hash}
	}
	config.Metadata.Retry.Max = 1
	config.Producer.Retry.Max = 1
	config.Producer.Return.Successes = true
	return config
}

func attempt(bootstrap, topic string, config *sarama.Config) error {
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	user := config.Net.SASL.User
	record := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(user)}
	if _, _, err := producer.SendMessage(record); err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	records, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	patience := time.After(30 * time.Second)
	for {
		select {
		case record := <-records.Messages():
			if string(record.Value) == user {
				return nil
			}
		case <-patience:
			return errors.New("the record was not read")
		}
	}
}

func main() {
	bootstrap, authority, topic, logins := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	pem, err := os.ReadFile(authority)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for ; len(logins) > 0; logins = logins[3:] {
		config := settings(roots, logins[0], logins[1], logins[2])
		if err := attempt(bootstrap, topic, config); err != nil {
			fmt.Printf("@%q\n", err.Error())
		} else {
			fmt.Println("@ok")
		}
	}
}
