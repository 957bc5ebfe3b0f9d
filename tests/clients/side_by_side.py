"""Apache Kafka and an agent beside each other: what both are asked, and what they tell, line by line.

A story is a list of commands (`Asked`), carried out one after the other against both. What they print
is the same, but for the lines that a command says only one of them prints; each such difference has a
row in docs/tools.md.
"""

import contextlib
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from tests.clients.kafka_tools import TOPICS, KafkaTools
from tests.parts.servers import FrazilDev, KafkaServer

BROKER_ID: Final = "1"
"""Of both."""
SETTINGS: Final = (
    "group.initial.rebalance.delay.ms=0",
    "auto.create.topics.enable=false",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
)
ONLY_FRAZIL: Final = ("puts.per.second=1000",)
ONLY_KAFKA: Final = (
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
    "share.coordinator.state.topic.num.partitions=1",
)

_NAMES: Final = (
    (re.compile(r"(SLF4J.*|Tools\$Ended.*|\tat .*|\t\.\.\. \d+ more)\n"), ""),
    # A member of KIP-848 may hear first that it has nothing yet.
    (re.compile(r'.*"partitions_assigned","partitions":\[\]}\n'), ""),
    (re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,:]\d{3}\]?"), "TIME"),
    (re.compile(r"\b1[78]\d{11}\b"), "TIME"),
    (re.compile(r"(?i)(topicid[:=] ?)[\w-]{22}"), r"\1ID"),
    (re.compile(r"(?i)(cluster ?id: +)\S+"), r"\1ID"),
    (re.compile(r'"(file://)?/tmp/[^"]*"'), '"DIR"'),
    # Of batches: their times are a byte or two, as milliseconds between records were.
    (re.compile(r'"size":[1-9]\d*'), '"size":N'),
    (re.compile(r"(Epoch: +|HighWatermark: +|LeaderEpoch: +)\d+"), r"\1N"),
    (re.compile(r"(deadlineMs|tries|nextAllowedTryMs)=\w+"), r"\1=N"),
    (re.compile(r" after \d+ attempt"), " after N attempt"),
)
"""What differs between any two clusters, and between two runs."""
_USAGE: Final = ("usage:", "Option Description")
"""What tools print of arguments that they do not understand."""
_READS: Final = frozenset({"--list", "--describe", "describe", "list", "--generate"})
"""Words of commands that may be repeated: Kafka's brokers hear of changes a moment after its controller."""
PATIENCE_S: Final = 10.0


class Pair(NamedTuple):
    """Where Kafka and an agent are."""

    kafka: str
    frazil: str


class Asked(NamedTuple):
    """One command, and in what the answers differ."""

    tool: str
    words: str
    """Its arguments, as in a shell. "@" is where the address goes; without one it comes first. The name
    of a file, `{name}`, stands for its path."""
    row: str = ""
    """Of docs/tools.md: the first cells of the row that says why they differ."""
    kafka: Sequence[str] = ()
    """Lines that only Kafka prints, in any order; `*` is any text."""
    frazil: Sequence[str] = ()
    measures: bool = False
    """Numbers are those of a measurement."""


Stories = Mapping[str, Sequence[Asked]]
"""By what happens in them."""


def created(topic: str, partitions: int, *more: str) -> list[Asked]:
    """A topic is made, and there."""
    words = ("--create", "--topic", topic, "--partitions", str(partitions), *more)
    return [Asked(TOPICS, shlex.join(words)), Asked(TOPICS, f"--list --topic {topic}")]


@contextlib.contextmanager
def pair(folder: Path, *settings: str) -> Iterator[Pair]:
    """Both, with the same settings; each of one broker, with the same id."""
    told = (*SETTINGS, *settings)
    own = (*told, *ONLY_FRAZIL, f"node.id={BROKER_ID}")
    kafka = KafkaServer(folder / "kafka", *told, *ONLY_KAFKA)
    kafka.start()
    try:
        words = [word for each in own for word in ("--set", each)]
        with FrazilDev(folder / "frazil", *words) as agent:
            yield Pair(kafka.bootstrap, agent.bootstrap)
            assert agent.stop() == 0
    finally:
        kafka.stop()


def tell(tools: KafkaTools, both: Pair, folder: Path, story: Sequence[Asked], **files: str) -> None:
    """Carry out a story. `files`: what the files hold that it names."""
    for name, text in files.items():
        (folder / name).write_text(text)
    paths = {name: str(folder / name) for name in files}
    wrong = []
    for asked in story:
        deadline = time.monotonic() + (PATIENCE_S if _READS & {*shlex.split(asked.words)} else 0)
        while (told := _wrong(tools, both, asked, paths)) and time.monotonic() < deadline:
            time.sleep(0.2)
        if told:
            wrong.append("\n    ".join([f"{asked.tool} {asked.words}", *told]))
    assert not wrong, "\n\n".join(wrong)


def _wrong(tools: KafkaTools, both: Pair, asked: Asked, paths: Mapping[str, str]) -> Sequence[str]:
    """In what the answers to a command differ that it does not say; or what it should have been."""
    kafka, frazil = (_printed(tools, bootstrap, asked, paths) for bootstrap in both)
    only = _only(kafka, frazil), _only(frazil, kafka)
    if any(line.startswith(_USAGE) for line in kafka):
        return kafka
    if _fit(only[0], asked.kafka) and _fit(only[1], asked.frazil):
        return ()
    return ["  only Kafka prints", *only[0], "  only Frazil prints", *only[1]]


def plain(printed: str, bootstrap: str) -> str:
    """Without what differs between any two clusters."""
    host, _, port = bootstrap.partition(":")
    printed = re.sub(rf"\b{port}\b", "PORT", printed)
    printed = re.sub(rf"{re.escape(host)}|\blocalhost\b", "HOST", printed)
    for pattern, name in _NAMES:
        printed = pattern.sub(name, printed)
    return printed


def _printed(
    tools: KafkaTools, bootstrap: str, asked: Asked, paths: Mapping[str, str]
) -> list[str]:
    """The lines, and the exit code behind them."""
    words = [word.format_map(paths) if paths else word for word in shlex.split(asked.words)]
    if "@" not in words:
        words = ["--bootstrap-server", "@", *words]
    code, text = tools.end_of(asked.tool, *(bootstrap if word == "@" else word for word in words))
    text = plain(text, bootstrap)
    if asked.measures:
        text = re.sub(r"\d+(\.\d+)?", "N", text)
    lines = [re.sub(r" +", " ", line.rstrip()) for line in text.splitlines() if line.strip()]
    return [*lines, f"exit {code}"]


def _only(some: Sequence[str], others: Sequence[str]) -> list[str]:
    return list((Counter(some) - Counter(others)).elements())


def _fit(lines: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether each line fits a pattern of its own, and each pattern a line. `[` is itself."""
    left = list(lines)
    for pattern in patterns:
        found = [line for line in left if fnmatchcase(line, pattern.replace("[", "[[]"))]
        if not found:
            return False
        left.remove(found[0])
    return not left
