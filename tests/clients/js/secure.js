// kafkajs over TLS: writes, and reads by a group. Arguments: bootstrap authority topic count [own].
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

async function main([bootstrap, authority, topic, count, own]) {
  const ssl = { ca: [fs.readFileSync(authority)] };
  if (own) ssl.cert = ssl.key = fs.readFileSync(own);
  const kafka = new Kafka({
    brokers: [bootstrap], ssl, logLevel: logLevel.NOTHING, retry: { retries: 5 },
  });
  const producer = kafka.producer();
  try {
    await producer.connect();
  } catch (error) {
    console.log("@failed " + error.message);
    return;
  }
  const messages = Array.from({ length: Number(count) }, (_, i) => ({ value: `value ${i} `.repeat(50) }));
  await producer.send({ topic, messages });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: topic });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const seen = new Set();
  await new Promise((done) => consumer.run({
    eachMessage: async ({ message }) => {
      seen.add(message.value.toString());
      if (seen.size === Number(count)) done();
    },
  }));
  await consumer.disconnect();
  console.log("@read " + seen.size);
}

main(process.argv.slice(2)).then(() => process.exit(0));
