"""`frazil produce` and `frazil consume`, against Frazil and against Apache Kafka: what holds there must hold here."""

import itertools
import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.broker.cli.test_completion import completed
from tests.clients import commands
from tests.clients.bounded import until
from tests.clients.commands import Done
from tests.parts.process import free_port
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

FRAZIL = (sys.executable, "-m", "broker")
SECONDS = 60
NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=["kafka", "embedded"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(request.param).bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return created(bootstrap)


def created(bootstrap: str, partitions: int = 1, **configs: str) -> str:
    """A topic that keeps records of any time."""
    configs = {"retention.ms": "-1", **configs}
    name = f"commanded-{next(NUMBERS)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topic(admin, name, partitions, configs)
    return name


def frazil(*arguments: str, at: str, given: bytes = b"") -> Done:
    return commands.frazil(*arguments, "--bootstrap", at, given=given)


def produce(topic: str, given: bytes, *arguments: str, at: str) -> None:
    done = frazil("produce", topic, *arguments, at=at, given=given)
    assert done == (0, b"", "")


def consume(topic: str, *arguments: str, at: str) -> bytes:
    done = frazil("consume", topic, *arguments, at=at)
    assert (done.code, done.err) == (0, "")
    return done.out


def refused(done: Done) -> str:
    """The sentence of a command that could not do its work."""
    assert done.code == 1
    (line,) = done.err.splitlines()
    return line


def test_lines_come_back_as_they_were(bootstrap: str, topic: str) -> None:
    produce(topic, b"one\n\n two\xff\r\nlast", at=bootstrap)
    assert consume(topic, "-e", at=bootstrap) == b"one\n\n two\xff\r\nlast\n"


def test_keys_nulls_and_headers_are_sent_and_shown(bootstrap: str, topic: str) -> None:
    sent = b"a=1\nb=NULL\n"
    produce(topic, sent, "-K", "=", "--null", "NULL", "-H", "from=here", at=bootstrap)
    form = r"%t:%p:%o %k=%s (%K,%S) %h\n"
    assert consume(topic, "-e", "-f", form, "--null", "-", at=bootstrap).decode().splitlines() == [
        f"{topic}:0:0 a=1 (1,1) from=here",
        f"{topic}:0:1 b=- (1,-1) from=here",
    ]


def test_a_topic_is_copied_with_keys_headers_and_timestamps_through_a_pipe(bootstrap: str) -> None:
    source, copy = created(bootstrap, 3), created(bootstrap, 3)
    lines = [
        json.dumps(
            {
                "key": None if number % 5 == 0 else f"k{number % 7}",
                "value": {"base64": "//8AAQ=="} if number % 3 == 0 else f"välue {number}\n",
                "headers": [{"name": "n", "value": str(number)}, {"name": "n", "value": None}],
                "timestamp": 1_790_000_000_000 + number,
                "partition": number % 3,
            }
        )
        for number in range(5000)
    ]
    given = "\n".join(lines).encode()
    produce(source, given, "--json", "--keep-partitions", "-z", "zstd", at=bootstrap)
    reading = [*FRAZIL, "consume", source, "-e", "--json", "--bootstrap", bootstrap]
    writing = [*FRAZIL, "produce", copy, "--json", "--keep-partitions", "--bootstrap", bootstrap]
    with subprocess.Popen(reading, stdout=subprocess.PIPE) as reader:
        subprocess.run(writing, stdin=reader.stdout, check=True, timeout=SECONDS)
    assert reader.returncode == 0

    def told(name: str) -> list[bytes]:
        """Each partition in its order."""
        every = [
            consume(name, "-e", "--json", "-p", str(number), at=bootstrap) for number in range(3)
        ]
        return [each.replace(name.encode(), b"") for each in every]

    assert told(copy) == told(source)
    found = [json.loads(line) for part in told(source) for line in part.splitlines()]
    wanted = [json.loads(line) for line in lines]
    assert [{**one, "topic": 0, "offset": 0} for one in found] == [
        {**one, "topic": 0, "offset": 0} for one in sorted(wanted, key=lambda one: one["partition"])
    ]


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (["-e"], range(10)),
        (["-e", "-o", "7"], range(7, 10)),
        (["-e", "-o", "-2"], range(8, 10)),
        (["-e", "-o", "latest"], ()),
        (["-e", "-o", "@1790000000004"], range(4, 10)),
        (["-e", "-o", "@2126-01-01"], ()),
        (["--until", "3"], range(3)),
        (["--until", "-3"], range(7)),
        (["--until", "@2026-09-21T14:13:20.002", "-o", "1"], range(1, 2)),
        (["-n", "4"], range(4)),
        (["-n", "2", "-o", "3"], range(3, 5)),
        (["-e", "-p", "0"], range(10)),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_records_are_read_from_a_place_to_a_place(
    numbered: tuple[str, str], arguments: Sequence[str], numbers: Sequence[int]
) -> None:
    at, topic = numbered
    assert consume(topic, *arguments, at=at).split() == [b"%d" % number for number in numbers]


@pytest.fixture(scope="module")
def numbered(bootstrap: str) -> tuple[str, str]:
    """(a cluster, its topic of ten numbers, a millisecond apart)."""
    name = created(bootstrap)
    lines = (json.dumps({"value": str(n), "timestamp": 1_790_000_000_000 + n}) for n in range(10))
    produce(name, "\n".join(lines).encode(), "--json", at=bootstrap)
    return bootstrap, name


def test_a_group_goes_on_behind_what_was_written_out(bootstrap: str, topic: str) -> None:
    produce(topic, b"".join(b"%d\n" % number for number in range(10)), at=bootstrap)
    group = ("-g", f"{topic}-readers")
    assert consume(topic, *group, "-n", "4", at=bootstrap).split() == [b"0", b"1", b"2", b"3"]
    rest = [b"%d" % number for number in range(4, 10)]
    assert consume(topic, *group, "-e", at=bootstrap).split() == rest
    assert consume(topic, *group, "-e", at=bootstrap) == b""


def test_what_no_longer_fitted_into_a_broken_pipe_is_read_again(bootstrap: str, topic: str) -> None:
    produce(
        topic, b"".join(b"%07d%s\n" % (number, b"." * 9999) for number in range(300)), at=bootstrap
    )
    group = ("-g", f"{topic}-readers", "-e")
    command = [*FRAZIL, "consume", topic, *group, "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline().startswith(b"0000000")
        reader.stdout.close()
        assert reader.stderr.read() == b""
    assert reader.returncode == 0
    again = consume(topic, *group, at=bootstrap).splitlines()
    numbers = [int(line[:7]) for line in again]
    assert numbers
    assert numbers == [*range(numbers[0], 300)]


def test_aborted_records_are_shown_to_who_asks_for_uncommitted_ones_alone(
    bootstrap: str, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for value, end in (("kept", producer.commit_transaction), ("torn", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(SECONDS)
        end(SECONDS)
    committed = ("--isolation-level", "read_committed")
    assert consume(topic, "-e", *committed, at=bootstrap) == b"kept\n"
    assert consume(topic, "-e", at=bootstrap) == b"kept\ntorn\n"


def test_files_are_values(bootstrap: str, topic: str, tmp_path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    for file, data in zip(files, (b"one\ntwo\n", b""), strict=True):
        file.write_bytes(data)
    produce(topic, b"", "--whole", *map(str, files), "-k", "file", at=bootstrap)
    produce(topic, b"", "--file", str(files[0]), at=bootstrap)
    shown = consume(topic, "-e", "-f", "%k,%S;", at=bootstrap)
    assert shown == b"file,8;file,0;,3;,3;"


def test_a_record_that_cannot_be_read_ends_it_behind_those_before(
    bootstrap: str, topic: str
) -> None:
    given = b'{"value": "a"}\n{"value": "b"}\n{"value": 3}\n{"value": "d"}\n'
    done = frazil("produce", topic, "--json", at=bootstrap, given=given)
    assert refused(done) == (
        'frazil produce: record 3 of the input: value is neither a string nor null nor {"base64": "…"};'
        f" 2 records before it are in topic {topic}"
    )
    assert consume(topic, "-e", at=bootstrap) == b"a\nb\n"


def test_a_record_that_librdkafka_does_not_take_is_named(bootstrap: str, topic: str) -> None:
    small = ("-X", "message.max.bytes=1000")
    done = frazil("produce", topic, *small, at=bootstrap, given=b"fits\n%s\n" % (b"." * 2000))
    said = refused(done)
    assert said.startswith("frazil produce: record 2: ")
    assert said.endswith(f"; 1 records before it are in topic {topic}")
    assert consume(topic, "-e", at=bootstrap) == b"fits\n"


def test_records_that_are_refused_are_counted_and_the_first_is_told(bootstrap: str) -> None:
    topic = created(bootstrap, 2, **{"max.message.bytes": "1000"})
    # Not in one batch, which would be refused as a whole.
    given = '{"value": "%s", "partition": 0}\n{"value": "fits", "partition": 1}\n' % ("." * 2000)
    done = frazil(
        "produce", topic, "--json", "--keep-partitions", at=bootstrap, given=given.encode()
    )
    said = refused(done)
    assert f"1 of 2 records are not in topic {topic}; the first is record 1: " in said
    assert "(MSG_SIZE_TOO_LARGE)" in said
    assert consume(topic, "-e", at=bootstrap) == b"fits\n"


MISTAKES = [
    ("consume {topic} -p 7 -e", "has no partition 7, but 0 to 0"),
    ("consume nowhere-at-all -e", 'there is no topic "nowhere-at-all" (frazil topic list'),
    ("consume {topic} -f %q", "--format: a template has no %q"),
    ("consume {topic} -g g -p 0", "--partition and --group exclude each other"),
    ("consume {topic} -g g --from 7", "a group goes on where it is"),
    ("consume {topic} -X nothing=1", 'librdkafka: No such configuration property: "nothing"'),
    ("produce {topic} -p 7", "has no partition 7, but 0 to 0"),
    ("produce {topic} --keep-partitions", "--keep-partitions wants --json"),
    ("produce {topic} --file /nowhere", "cannot read /nowhere: No such file"),
    ("produce {topic} --whole /nowhere", "cannot read /nowhere: No such file"),
    ("produce {topic} -X linger.ms=soon", "librdkafka: "),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES, ids=[one for one, _ in MISTAKES])
def test_a_mistake_is_told_in_a_sentence(
    numbered: tuple[str, str], arguments: str, sentence: str
) -> None:
    at, topic = numbered
    assert sentence in refused(frazil(*arguments.format(topic=topic).split(), at=at))


@pytest.mark.parametrize(
    "command", [["consume", "t", "-e"], ["produce", "t"]], ids=lambda one: one[0]
)
def test_where_no_agent_answers_it_is_said_which_address_was_asked(command: list[str]) -> None:
    port = free_port()
    said = refused(frazil(*command, "--timeout-ms", "1000", at=f"127.0.0.1:{port}"))
    assert said.startswith(
        f"frazil {command[0]}: no agent answers at 127.0.0.1:{port}: is one running?"
    )


def test_a_shell_completes_names_of_topics_and_groups(numbered: tuple[str, str], tmp_path) -> None:
    at, topic = numbered
    group = f"completed-{topic}"
    assert len(consume(topic, "-g", group, "-e", at=at).split()) == 10
    for line, name in (
        (f"frazil consume --bootstrap {at} {topic[:-1]}", topic),
        (f"frazil group describe --bootstrap {at} comple", group),
    ):
        # A cluster has a second to answer, which a busy machine may not give it.
        until(partial(completed, line, tmp_path), lambda words, name=name: words.count(name) == 1)


def test_a_benchmark_measures_and_leaves_nothing_behind(bootstrap: str) -> None:
    command = [
        *FRAZIL,
        "bench",
        "--seconds",
        "1",
        "--partitions",
        "2",
        "--json",
        "--bootstrap",
        bootstrap,
    ]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    told = json.loads(done.stdout)
    assert told["paced_rate"] == pytest.approx(max(told["most"]["produced"] / 10, 1.0))
    for run in (told["most"], told["paced"]):
        assert run["failed"] == 0
        for rate, times in (("produced", "acknowledged"), ("consumed", "read")):
            assert run[rate] > 0
            assert 0 < run[times]["p50"] <= run[times]["p99"] <= run[times]["p100"]
    assert told["paced"]["produced"] <= told["paced_rate"] * 1.5
    listed = json.loads(commands.frazil("topic", "list", "--json", "--bootstrap", bootstrap).out)
    assert not [one for one in listed if one["name"].startswith("frazil-bench")]


def test_a_benchmark_of_a_topic_that_is_not_there_is_told_so(bootstrap: str) -> None:
    command = [
        *FRAZIL,
        "bench",
        "--topic",
        "nowhere-at-all",
        "--seconds",
        "1",
        "--bootstrap",
        bootstrap,
    ]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    assert b'there is no topic "nowhere-at-all"' in done.stderr
    assert done.stderr.count(b"\n") == 1
