"""Many librdkafka clients in one process: `python -m tests.harm.honest.crowd BOOTSTRAP TOPIC NAME CLIENTS`.

Half of them produce, half consume in groups of this process, `MEMBERS` each. Everything that the
process wrote is read by each of its groups; then it ends. Settings are librdkafka's own, as in
`librdkafka`.
"""

import sys
import time

from confluent_kafka import Consumer, Producer

from tests.harm.honest.kit import tell
from tests.harm.honest.librdkafka import LONG_S, Troubles

RECORDS = 20
"""Of each producer."""
MEMBERS = 10
"""Of each group."""


def main(bootstrap: str, topic: str, name: str, clients: int) -> None:
    troubles = Troubles()
    config = troubles.config(bootstrap)
    begun = time.monotonic()
    groups = [f"{name}-{number // MEMBERS}" for number in range(clients // 2)]
    consumers = [
        (group, Consumer({**config, "group.id": group, "auto.offset.reset": "earliest"}))
        for group in groups
    ]
    for _, consumer in consumers:
        consumer.subscribe([topic])
    producers = [Producer(config) for _ in range(clients - len(consumers))]
    sent = {f"{name}/{who}/{i}".encode() for who in range(len(producers)) for i in range(RECORDS)}
    for i in range(RECORDS):
        for who, producer in enumerate(producers):
            producer.produce(topic, f"{name}/{who}/{i}")
            producer.poll(0)
    for producer in producers:
        assert producer.flush(LONG_S) == 0
    tell("produced", time.monotonic() - begun)
    left = {group: set(sent) for group in groups}
    due = time.monotonic() + LONG_S
    while any(left.values()):
        assert time.monotonic() < due, f"not read: {[len(each) for each in left.values()]}"
        for group, consumer in consumers:
            for message in consumer.consume(1000, timeout=0.002):
                assert message.error() is None, message.error()
                left[group].discard(message.value())
    tell("read", time.monotonic() - begun)
    for _, consumer in consumers:
        consumer.close()
    tell("closed", time.monotonic() - begun)
    if troubles.found:
        sys.exit("\n".join(troubles.found[:20]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
