// Avro, JSON and Protobuf by @kafkajs/confluent-schema-registry: registered, encoded, written by
// kafkajs, read in a group, decoded. Arguments: bootstrap, registry, user, password. Prints one
// line of JSON: by subject what came back, and the errors of what the registry refuses.
const { Kafka, logLevel } = require("kafkajs");
const { SchemaRegistry, SchemaType, COMPATIBILITY } = require("@kafkajs/confluent-schema-registry");

const [bootstrap, host, username, password] = process.argv.slice(2);
const AVRO = {
  type: "record",
  name: "Order",
  namespace: "shop",
  fields: [
    { name: "id", type: "long" },
    { name: "note", type: ["null", "string"], default: null },
  ],
};
const PRICED = { ...AVRO, fields: [...AVRO.fields, { name: "cents", type: "long", default: 7 }] };
const NAMED = { ...AVRO, fields: [...AVRO.fields, { name: "name", type: "string" }] };
const JSON_SCHEMA = {
  type: "object",
  title: "Order",
  additionalProperties: false,
  properties: { id: { type: "integer" }, note: { type: "string" } },
  required: ["id"],
};
const PROTO = `syntax = "proto3";
package shop;
message Order { int64 id = 1; string note = 2; repeated string tags = 3; }`;

const registry = new SchemaRegistry({ host, auth: { username, password } });
const kafka = new Kafka({ clientId: "js", brokers: [bootstrap], logLevel: logLevel.WARN });

async function through(topic, values) {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }] });
  await admin.disconnect();
  const producer = kafka.producer({ allowAutoTopicCreation: false });
  await producer.connect();
  await producer.send({ topic, messages: values.map((value) => ({ value })), acks: -1 });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `reads-${topic}`, maxWaitTimeInMs: 100 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const read = [];
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error));
    const eachMessage = async ({ message }) => {
      read.push(message.value);
      if (read.length === values.length) resolve();
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
  return read;
}

async function refusal(call) {
  try {
    await call();
  } catch (error) {
    return { name: error.name, message: error.message };
  }
  return null;
}

async function main() {
  const said = {};
  const first = await registry.register(
    { type: SchemaType.AVRO, schema: JSON.stringify(AVRO) },
    { subject: "js-avro-value", compatibility: COMPATIBILITY.BACKWARD },
  );
  const second = await registry.register(
    { type: SchemaType.AVRO, schema: JSON.stringify(PRICED) },
    { subject: "js-avro-value" },
  );
  const avro = await through("js-avro", [
    await registry.encode(first.id, { id: 1, note: null }),
    await registry.encode(second.id, { id: 2, note: "é", cents: 250 }),
  ]);
  // A client of its own, which has to ask for the schemas.
  const reader = new SchemaRegistry({ host, auth: { username, password } });
  const newest = { [SchemaType.AVRO]: { readerSchema: PRICED } };
  said.avro = [];
  for (const value of avro) said.avro.push(await reader.decode(value, newest));
  said.incompatible = await refusal(() =>
    registry.register(
      { type: SchemaType.AVRO, schema: JSON.stringify(NAMED) },
      { subject: "js-avro-value" },
    ),
  );
  said.latest = [(await registry.getLatestSchemaId("js-avro-value")) === second.id];
  said.latest.push((await registry.getRegistryId("js-avro-value", 1)) === first.id);
  said.latest.push(
    (await registry.getRegistryIdBySchema("js-avro-value", {
      type: SchemaType.AVRO,
      schema: JSON.stringify(AVRO),
    })) === first.id,
  );

  const json = await registry.register(
    { type: SchemaType.JSON, schema: JSON.stringify(JSON_SCHEMA) },
    { subject: "js-json-value" },
  );
  const [order] = await through("js-json", [await registry.encode(json.id, { id: 3, note: "x" })]);
  said.json = await reader.decode(order);
  said.invalid = await refusal(() => registry.encode(json.id, { note: 4 }));

  const proto = await registry.register(
    { type: SchemaType.PROTOBUF, schema: PROTO },
    { subject: "js-proto-value" },
  );
  const message = await registry.encode(proto.id, { id: 4, note: "y", tags: ["a", "b"] });
  const [bytes] = await through("js-proto", [message]);
  said.proto = JSON.parse(JSON.stringify(await reader.decode(bytes)));

  const stranger = new SchemaRegistry({ host }, {});
  said.stranger = await refusal(() => stranger.getLatestSchemaId("js-avro-value"));
  console.log(JSON.stringify(said));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
