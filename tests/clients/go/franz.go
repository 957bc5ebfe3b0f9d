// franz-go logs in over TLS, writes a record and reads it back.
// Arguments: bootstrap authority topic, and mechanism user password, as often as wanted; of OAUTHBEARER
// the password is a token.
// Tells "@" and what became of each, in a line.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func mechanism(name, user, password string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	default:
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
}

func attempt(bootstrap, topic string, roots *x509.CertPool, how sasl.Mechanism, user string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.SASL(how),
		kgo.DialTLSConfig(&tls.Config{RootCAs: roots}),
		kgo.RequestRetries(1), kgo.RecordDeliveryTimeout(10*time.Second),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	record := &kgo.Record{Topic: topic, Partition: 0, Value: []byte(user)}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if string(record.Value) == user {
				return nil
			}
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
		how := mechanism(logins[0], logins[1], logins[2])
		if err := attempt(bootstrap, topic, roots, how, logins[1]); err != nil {
			fmt.Printf("@%q\n", err.Error())
		} else {
			fmt.Println("@ok")
		}
	}
}
