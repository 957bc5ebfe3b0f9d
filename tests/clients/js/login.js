// kafkajs logs in by SASL and writes a record. Arguments: bootstrap topic mechanism user password
// [authority], with which it does so over TLS; of OAUTHBEARER the password is a token.
// Prints "ok", or the name and the message of what went wrong.
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, mechanism, username, password, authority] = process.argv.slice(2);
const kafka = new Kafka({
  brokers: [bootstrap],
  ssl: authority && { ca: [fs.readFileSync(authority)] },
  logLevel: logLevel.NOTHING,
  retry: { retries: 3 },
  sasl:
    mechanism === "OAUTHBEARER"
      ? { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: password }) }
      : { mechanism: mechanism.toLowerCase(), username, password },
});

async function main() {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: [{ value: username }] });
  await producer.disconnect();
}

main().then(
  () => console.log("ok"),
  (error) => console.log(`${error.name}: ${error.message}`),
).then(() => process.exit(0)); // A connection may be open.
