// Transactional producers of kafkajs, and pipes from topic to topic, told what to do by lines of
// words between tabs, as java/Transactions.java. Each line is answered before the next is read.
const readline = require("readline");
const { Kafka, logLevel } = require("kafkajs");

const things = new Map();
const one = (error) => String(error).replace(/\s+/g, " ");

function client(bootstrap, name) {
  const noted = (entry) => console.log(name, JSON.stringify(entry.log));
  return new Kafka({
    clientId: name,
    brokers: [bootstrap],
    logLevel: logLevel.ERROR,
    logCreator: () => noted,
  });
}

async function open(kafka, id, timeout) {
  const producer = kafka.producer({
    transactionalId: id,
    transactionTimeout: Number(timeout),
    idempotent: true,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  return producer;
}

// Numbers of a small linear congruence, so that a seed says what is aborted.
function draws(seed) {
  let state = seed + 1;
  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}

async function pipe(name, bootstrap, id, source, sink, seed) {
  const kafka = client(bootstrap, name);
  const producer = await open(kafka, id, 30000);
  const consumer = kafka.consumer({ groupId: sink, maxWaitTimeInMs: 100 });
  const random = draws(Number(seed));
  const counts = { producer, consumer, commits: 0, aborts: 0, failure: null };
  things.set(name, counts);
  await consumer.connect();
  await consumer.subscribe({ topics: [source], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, isRunning }) => {
      for (let at = 0; at < batch.messages.length && isRunning(); at += 20) {
        const some = batch.messages.slice(at, at + 20);
        const next = String(Number(some[some.length - 1].offset) + 1);
        const partitions = [{ partition: batch.partition, offset: next }];
        let done = false;
        while (!done) {
          const transaction = await producer.transaction();
          try {
            const messages = some.map((message) => ({
              partition: batch.partition,
              value: message.value.toString() + "!",
            }));
            await transaction.send({ topic: sink, messages });
            await transaction.sendOffsets({
              consumerGroupId: sink,
              topics: [{ topic: batch.topic, partitions }],
            });
          } catch (error) {
            // It does not ask again after CONCURRENT_TRANSACTIONS, as others do.
            console.log(name, one(error));
            await transaction.abort();
            continue;
          }
          if (random() < 0.25) {
            await transaction.abort();
            counts.aborts++;
          } else {
            await transaction.commit();
            counts.commits++;
            done = true;
          }
        }
        resolveOffset(some[some.length - 1].offset);
      }
    },
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    counts.failure = counts.failure || payload.error;
  });
}

async function obey([what, name, ...words]) {
  if (what === "pipe") return await pipe(name, ...words);
  if (what === "producer") {
    things.set(name, { producer: await open(client(words[0], name), words[1], words[2]) });
    return;
  }
  const thing = things.get(name);
  if (what === "begin") thing.transaction = await thing.producer.transaction();
  if (what === "send") {
    const messages = [];
    for (let at = 1; at < words.length; at += 2)
      messages.push({ partition: Number(words[at]), value: words[at + 1] });
    await thing.transaction.send({ topic: words[0], messages, acks: -1 });
  }
  if (what === "commit") await thing.transaction.commit();
  if (what === "abort") await thing.transaction.abort();
  if (what === "close") await thing.producer.disconnect();
  if (what === "stop") {
    await thing.consumer.disconnect();
    await thing.producer.disconnect();
    if (thing.failure) throw thing.failure;
    return [thing.commits, thing.aborts];
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      const words = (await obey(line.split("\t"))) || [];
      process.stdout.write(["@ok", ...words].join("\t") + "\n");
    } catch (error) {
      process.stdout.write("@failed\t" + one(error) + "\n");
    }
  }
  process.exit(0);
}

main();
