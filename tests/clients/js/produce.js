// kafkajs writes the records of tests/clients/records.py. Arguments: bootstrap topic codec count,
// and the first timestamp.
// (kafkajs brings gzip itself; the other codecs are plug-ins of others, so it writes none and gzip.)
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [bootstrap, topic, codec, count, first] = process.argv.slice(2);

function record(i) {
  const tombstone = i % 97 === 0;
  return {
    key: !tombstone && i % 5 === 0 ? null : `key ${i % 100}`,
    value: tombstone ? null : `value ${i} `.repeat(1 + (i % 7)),
    headers: i % 3 === 0 ? { n: [String(i), "again"] } : {},
    timestamp: String(Number(first) + i),
  };
}

async function main() {
  const kafka = new Kafka({ clientId: "js", brokers: [bootstrap], logLevel: logLevel.WARN });
  const producer = kafka.producer({ idempotent: true, allowAutoTopicCreation: true });
  await producer.connect();
  const compression = codec === "gzip" ? CompressionTypes.GZIP : CompressionTypes.None;
  for (let at = 0; at < Number(count); at += 500) {
    const messages = [];
    for (let i = at; i < Math.min(at + 500, Number(count)); i++) messages.push(record(i));
    await producer.send({ topic, messages, compression, acks: -1 });
  }
  await producer.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
