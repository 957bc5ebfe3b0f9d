// Group members of kafkajs, told what to do by lines of words between tabs, as java/Members.java:
// "open name topics key=value…", "commit name [topic partition offset]…", "close name".
const readline = require("readline");
const { Kafka, logLevel } = require("kafkajs");

const members = new Map();
const tell = (...words) => process.stdout.write("@" + words.join("\t") + "\n");
const one = (error) => String(error).replace(/\s+/g, " ");
const places = (assignment) =>
  Object.entries(assignment)
    .flatMap(([topic, partitions]) => partitions.map((partition) => `${topic}/${partition}`))
    .join(",");

async function open(name, topics, settings) {
  const config = Object.fromEntries(settings.map((setting) => setting.split("=")));
  // It logs as errors what a rebalance answers to heartbeats, and "crashes" to begin again when
  // there is no coordinator yet; an error is what ends a member.
  const noted = (entry) => console.log(name, JSON.stringify(entry.log));
  const kafka = new Kafka({
    clientId: name,
    brokers: [config["bootstrap.servers"]],
    logLevel: logLevel.ERROR,
    logCreator: () => noted,
  });
  const consumer = kafka.consumer({
    groupId: config["group.id"],
    heartbeatInterval: Number(config["heartbeat.interval.ms"]),
    sessionTimeout: Number(config["session.timeout.ms"] || 30000),
    maxWaitTimeInMs: 100,
    maxBytesPerPartition: Number(config["max.partition.fetch.bytes"] || 1048576),
    readUncommitted: config["isolation.level"] === "read_uncommitted",
    retry: { initialRetryTime: 50 },
  });
  const member = { consumer, owned: "", read: new Map() };
  members.set(name, member);
  const gone = () => {
    if (member.owned) tell("revoked", name, member.owned);
    member.owned = "";
    member.read.clear();
  };
  consumer.on(consumer.events.REBALANCING, gone);
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    gone();
    member.owned = places(payload.memberAssignment);
    tell("identity", name, payload.memberId, "-1");
    tell("assigned", name, member.owned);
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) tell("error", name, one(payload.error));
  });
  await consumer.connect();
  await consumer.subscribe({ topics: topics.split(","), fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      member.read.set(`${topic}\t${partition}`, Number(message.offset) + 1);
      tell("record", name, topic, partition, message.offset, message.value.toString());
    },
  });
}

async function commit(name, words) {
  const { consumer, read } = members.get(name);
  const offsets = [];
  for (let at = 0; at < words.length; at += 3)
    offsets.push({ topic: words[at], partition: Number(words[at + 1]), offset: words[at + 2] });
  if (offsets.length === 0)
    for (const [place, offset] of read) {
      const [topic, partition] = place.split("\t");
      offsets.push({ topic, partition: Number(partition), offset: String(offset) });
    }
  await consumer.commitOffsets(offsets);
}

async function obey(line) {
  const [what, name, ...words] = line.split("\t");
  try {
    if (what === "open") return await open(name, words[0], words.slice(1));
    if (what === "commit") await commit(name, words);
    if (what === "close") await members.get(name).consumer.disconnect();
    tell("done", name);
  } catch (error) {
    tell("failed", name, one(error));
  }
}

const input = readline.createInterface({ input: process.stdin });
input.on("line", obey);
input.on("close", () => process.exit(0));
