"""Frames between an agent and its worker: whole, in any pieces, and nothing else is believed."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.settings import load
from broker.jobs.worker import pipe_frames
from broker.jobs.worker.pipe_frames import FrameError, FrameReader, FrameType
from coordinator.commands.entries import DONE, Pin, Pinned, PurgePartitions, Rejected, Tick
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    DropRows,
    JobKind,
    LogsTrimmed,
    ObjectsDoomed,
    PublishSnapshot,
    RowsMoved,
    Trimmed,
)
from coordinator.log.metadata_log import (
    LogCutError,
    LogEntry,
    LogError,
    LogHoleError,
    LogRefusedError,
    LogUnavailableError,
)
from protocol.errors import ErrorCode
from protocol.fault_codes import FaultCode
from protocol.types import Incarnation, Position, TopicId
from storage.formats.spans import ObjectId, ObjectKind

BODIES = st.lists(st.tuples(st.sampled_from(FrameType), st.binary(max_size=200)), max_size=10)


@given(BODIES, st.lists(st.integers(1, 50)))
def test_frames_are_read_however_they_are_cut(
    frames: list[tuple[FrameType, bytes]], cuts: list[int]
) -> None:
    data = b"".join([pipe_frames.frame(kind, body) for kind, body in frames])
    reader, read = FrameReader(), []
    for cut in cuts:
        read += reader.feed(data[:cut])
        data = data[cut:]
    read += reader.feed(data)
    assert read == frames


@pytest.mark.parametrize("data", [b"\xff\xff\xff\x7f\x01", b"\0\0\0\0\xff"])
def test_what_is_no_frame_is_an_error(data: bytes) -> None:
    with pytest.raises(FrameError):
        list(FrameReader().feed(data))


@given(st.sampled_from(FrameType), st.binary(max_size=300))
def test_bodies_that_cannot_be_read_are_frame_errors_and_nothing_else(
    kind: FrameType, body: bytes
) -> None:
    readers = [
        pipe_frames.json_of,
        pipe_frames.entries_of,
        pipe_frames.proposal_of,
        pipe_frames.outcome_of,
    ]
    for read in readers:
        try:
            read(body)
        except FrameError:
            continue


ENTRIES = st.lists(
    st.builds(
        LogEntry,
        st.integers(1, (1 << 63) - 1).map(Position),
        st.integers(0, (1 << 63) - 1),
        st.integers(0, 1 << 40),
        st.binary(max_size=300),
    ),
    min_size=1,
)


@given(ENTRIES)
def test_entries_arrive_as_they_lie_in_the_log(entries: list[LogEntry]) -> None:
    (frame,) = FrameReader().feed(b"".join(pipe_frames.entries_frames(7, entries)))
    assert pipe_frames.entries_of(frame.body) == (7, entries)


@pytest.mark.parametrize("kind", [LogRefusedError, LogUnavailableError])
def test_an_error_of_the_log_arrives_with_its_code(kind: type[LogError]) -> None:
    for fault in (FaultCode.ETCD_REFUSED, None):
        arrived = pipe_frames.error_of(pipe_frames.error_fields(kind("no", fault=fault)))
        assert isinstance(arrived, kind)
        assert (str(arrived), arrived.fault) == ("no", fault)


def test_an_error_with_a_code_that_is_none_is_refused() -> None:
    with pytest.raises(FrameError):
        pipe_frames.error_of({"error": "refused", "message": "no", "code": "brew"})


def test_many_entries_are_sent_in_frames_of_bounded_size() -> None:
    entries = [LogEntry(Position(n), 1, n, bytes(60_000)) for n in range(1, 30)]
    frames = list(pipe_frames.entries_frames(7, entries))
    assert max(map(len, frames)) < pipe_frames.ENTRIES_BYTES + 61_000
    received = [
        pipe_frames.entries_of(each.body)[1] for each in FrameReader().feed(b"".join(frames))
    ]
    assert [entry for some in received for entry in some] == entries


def test_entries_that_end_in_the_middle_are_an_error() -> None:
    (frame,) = FrameReader().feed(
        b"".join(pipe_frames.entries_frames(7, [LogEntry(Position(1), 1, 1, b"payload")]))
    )
    for length in range(9, len(frame.body)):
        with pytest.raises(FrameError):
            pipe_frames.entries_of(frame.body[:length])


@pytest.mark.parametrize(
    "command",
    [
        BeginSnapshot(),
        PublishSnapshot(Position(5), bytes(16), "snapshots/5/manifest"),
        DropRows(((TopicId(bytes(16)), 3),)),
        PurgePartitions(TopicId(bytes(16)), 0, 3),
        Pin("frazil.snapshots.1.2", 9),
    ],
)
def test_commands_of_jobs_arrive(command: object) -> None:
    (frame,) = FrameReader().feed(pipe_frames.propose_frame(9, command))
    assert pipe_frames.proposal_of(frame.body) == (9, command)


@pytest.mark.parametrize("command", [Tick(), ClaimJobs((JobKind.MERGE,))])
def test_a_worker_cannot_propose_what_is_no_jobs_command(command: object) -> None:
    (frame,) = FrameReader().feed(pipe_frames.propose_frame(9, command))
    with pytest.raises(FrameError, match="no job's"):
        pipe_frames.proposal_of(frame.body)


@pytest.mark.parametrize(
    "outcome",
    [
        DONE,
        Rejected(ErrorCode.INVALID_REQUEST, "so it is"),
        LogsTrimmed((Trimmed(ErrorCode.NONE, 7), Trimmed(ErrorCode.UNKNOWN_TOPIC_ID, -1))),
        RowsMoved((ErrorCode.NONE, ErrorCode.INVALID_REQUEST)),
        ObjectsDoomed((ObjectId(Incarnation(4), 9, ObjectKind.SEGMENT),)),
        Pinned(Position(7), 1 << 40),
    ],
)
def test_outcomes_arrive(outcome: object) -> None:
    (frame,) = FrameReader().feed(pipe_frames.outcome_frame(9, Position(44), outcome))
    ticket, position, received = pipe_frames.outcome_of(frame.body)
    assert (ticket, position, received) == (9, 44, outcome)
    assert type(received) is type(outcome)


@pytest.mark.parametrize(
    "error",
    [
        LogUnavailableError("away"),
        LogRefusedError("no"),
        LogHoleError("a hole"),
        LogCutError(Position(3), Position(9)),
    ],
)
def test_errors_of_the_log_arrive_as_what_they_are(error: Exception) -> None:
    received = pipe_frames.error_of(pipe_frames.error_fields(error), Position(3))
    assert type(received) is type(error)
    assert str(received) == str(error)
    assert getattr(received, "cut", None) == getattr(error, "cut", None)


def test_an_answer_without_an_error_has_none() -> None:
    assert pipe_frames.error_of({"head": 5}) is None


def test_settings_arrive_without_listeners_and_without_the_logs_secrets() -> None:
    flags = (
        "store=s3://bucket/prefix",
        "store.access.key=who",
        "store.secret.key=secret",
        "log=etcd://host:2379",
        "log.user=me",
        "log.password=hidden",
        "listen=INTERNAL://127.0.0.1:0",
        "log.cleanup.policy=compact,delete",
        "merge.age.ms=5000",
    )
    settings = load(defaults={}, toml=None, environ={}, flags=flags).settings
    frame = pipe_frames.json_frame(
        FrameType.HELLO, {"settings": pipe_frames.settings_to_json(settings)}
    )
    assert b"hidden" not in frame
    (received,) = FrameReader().feed(frame)
    told = pipe_frames.settings_of_json(pipe_frames.json_of(received.body)["settings"])
    assert told.store_secret_key == "secret"
    assert told.kafka == settings.kafka
    unknown = {"listen": (), "http": None, "log_url": "", "log_user": None, "log_password": None}
    assert told == dataclasses.replace(settings, **unknown)


def test_a_worker_is_not_told_the_secrets_of_listeners() -> None:
    given = (
        "listeners=SSL://127.0.0.1:0",
        "ssl.keystore.location=/k.p12",
        "ssl.keystore.password=hidden",
        "listener.name.ssl.ssl.key.password=hidden",
        "num.partitions=7",
    )
    flags = ("store=file:///s", "log=sqlite:///l", *given)
    settings = load(defaults={}, toml=None, environ={}, flags=flags).settings
    told = pipe_frames.settings_to_json(settings)
    assert told["kafka"]["given"] == {"num.partitions": "7"}
    assert "hidden" not in str(told)


def test_a_worker_is_not_told_who_clients_are() -> None:
    flags = (
        "store=file:///s",
        "log=sqlite:///l",
        "first.users=SCRAM-SHA-512=[name=alice,password=hidden]",
        "http.token=hidden-for-nobody-sees-it",
        "schema.registry.basic.auth.user.info=ann:hidden",
    )
    settings = load(defaults={}, toml=None, environ={}, flags=flags).settings
    frame = pipe_frames.json_frame(
        FrameType.HELLO, {"settings": pipe_frames.settings_to_json(settings)}
    )
    assert b"hidden" not in frame
    (received,) = FrameReader().feed(frame)
    told = pipe_frames.settings_of_json(pipe_frames.json_of(received.body)["settings"])
    assert told.first_users == ()
    assert told.http_token is None
