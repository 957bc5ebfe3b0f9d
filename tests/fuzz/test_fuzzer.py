"""Planted bugs are found, made small, and kept; sound code is not accused."""

import gc
import logging
import math
import random
import resource
import time
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from broker.api import Cold
from broker.handlers import SERVED
from broker.telemetry.series import Series
from protocol import apis, framing, primitives
from tests.fuzz import corpus, grammar, verdict
from tests.fuzz.campaign import Campaign
from tests.fuzz.target import Target, WrongError
from tests.fuzz.targets.agent import Agent
from tests.fuzz.targets.frames import Frames
from tests.fuzz.targets.telemetry import Telemetry
from tests.fuzz.verdict import Checker, StuckError, leak
from tests.kit.otlp import gauge, histogram, payload


class Pretended(Target):
    """A target that does what a test says, with inputs of some random bytes."""

    name = "pretended"

    def __init__(self, act) -> None:
        self.act = act

    @override
    def generate(self, rng: random.Random) -> bytes:
        return rng.randbytes(rng.randrange(1, 8))

    @override
    def run(self, data: bytes) -> Hashable:
        return self.act(data)


def campaign_of(target: Target, *, count: int, strict: bool = False) -> Campaign:
    campaign = Campaign(target, seed=1, strict=strict)
    campaign.run(until=float("inf"), count_max=count)
    return campaign


def checked(act, *, strict: bool = False, cpu_ms_max: float = Target.cpu_ms_max) -> str | None:
    target = Pretended(act)
    target.cpu_ms_max = cpu_ms_max
    checker = Checker(target)
    with checker.listening():
        finding = checker.check(b"x", strict=strict).finding
    return finding.sign if finding else None


def test_a_planted_bug_in_a_parser_is_found_and_its_input_made_small(monkeypatch) -> None:
    """As if tagged fields were looked up in a table that has but those that we know (KIP-482)."""
    sound = primitives.read_tagged_fields

    def read_tagged_fields(view, at):
        fields, at = sound(view, at)
        for tag in fields:
            assert tag < 16, KeyError(tag)
        return fields, at

    monkeypatch.setattr("protocol.messages.codec.read_tagged_fields", read_tagged_fields)
    campaign = campaign_of(Frames(), count=4000)
    (found,) = campaign.found.values()
    assert found.finding.sign.startswith("AssertionError")
    assert len(found.data) < 100


def test_a_bug_that_only_pieces_show_is_found(monkeypatch) -> None:
    """As if the bytes of a length that came in two pieces were taken in the wrong order."""
    receive = framing.FrameSplitter.receive

    def broken(self, data):
        if self._head and len(data) == 1:
            data = bytes(data)[::-1] + b"\0"
        return receive(self, data)

    monkeypatch.setattr(framing.FrameSplitter, "receive", broken)
    assert campaign_of(Frames(), count=4000).found


def test_a_handler_that_fails_is_found_in_a_whole_agent(monkeypatch) -> None:
    """One request among many, of an API whose handler meets what it did not think of."""

    async def handle(node, call, request):
        return request.topics[0]

    sound = SERVED[apis.DELETE_TOPICS]
    assert isinstance(sound.handler, Cold)
    broken = replace(sound, handler=sound.handler._replace(handle=handle))
    monkeypatch.setitem(SERVED, apis.DELETE_TOPICS, broken)
    frames = [
        grammar.generated(random.Random(seed), grammar.Names(), apis.DELETE_TOPICS, 1, seed)
        for seed in range(40)
    ]
    checker = Checker(Agent())
    with checker.listening():
        assert checker.check(b"".join(frames), strict=False).finding


def test_two_metrics_of_clients_that_are_told_as_one_are_found(monkeypatch) -> None:
    """As if a histogram's series could not be called as those of another metric."""
    target = Telemetry()
    data = b"\0" + payload(histogram("h", [1.0], [1, 1], 2.0), gauge("h_sum", 1))
    target.run(data)
    monkeypatch.setattr(Series, "_is_taken", lambda self, name, kind: False)
    with pytest.raises(WrongError, match="a series that is there twice"):
        target.run(data)


def test_a_line_in_the_log_with_a_traceback_is_a_finding() -> None:
    def act(_data: bytes) -> None:
        try:
            raise KeyError("x")
        except KeyError:
            logging.getLogger("somewhere").warning("met %s", "it", exc_info=True)

    sign = checked(act)
    assert sign is not None
    assert sign.startswith("log: met %s KeyError")
    assert checked(lambda _: logging.getLogger("somewhere").warning("fine")) is None


def test_what_keeps_the_loop_busy_is_a_finding() -> None:
    def act(_data: bytes) -> None:
        begun = time.thread_time()
        while time.thread_time() - begun < 0.15:
            pass

    assert checked(act, strict=True) == "stands still"
    assert checked(time.sleep, strict=True) is not None  # It takes no bytes.
    assert checked(lambda _: time.sleep(0.15), strict=True) is None, "waiting keeps nobody busy"


def test_an_input_that_does_not_end_is_ended_and_found(monkeypatch) -> None:
    monkeypatch.setattr(verdict, "STUCK_S", 0.2)

    def act(_data: bytes) -> None:
        while True:
            pass

    assert checked(act) == "does not end"
    assert not issubclass(StuckError, Exception), "somebody would catch it"


def test_what_one_input_takes_of_memory_is_a_finding() -> None:
    # What counts is the most that the process ever had, and tests before this one may have had more.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // verdict.TO_MIB << 20

    def takes_much(_: bytes) -> None:
        bytearray(b"x") * (most + (1 << 28))

    assert checked(takes_much, strict=True, cpu_ms_max=math.inf) == "memory"


def test_memory_of_libraries_that_are_loaded_with_the_first_inputs_is_no_finding() -> None:
    held: list[bytearray] = []

    def load_once(_: bytes) -> None:
        if not held:
            held.append(bytearray(b"x") * (1 << 28))

    target = Pretended(load_once)
    target.cpu_ms_max = math.inf
    assert not campaign_of(target, count=40, strict=True).found


def test_memory_that_every_input_keeps_is_found_and_what_is_cached_is_not() -> None:
    kept: list[object] = []
    cached: dict[bytes, object] = {}

    def batch() -> list[bytes]:
        return [b"%d" % number for number in range(500)]

    gc.collect()
    finding = leak(Checker(Pretended(lambda data: kept.append([data, object(), object()]))), batch)
    assert finding is not None
    kept.clear()
    assert leak(Checker(Pretended(lambda data: cached.setdefault(data, [data]))), batch) is None


def test_inputs_of_which_something_new_comes_are_changed_on() -> None:
    """Four bytes one after the other are never guessed at once, but one behind the other."""
    secret = b"fuzz"

    def act(data: bytes) -> int:
        count = 0
        while count < len(secret) and data[count : count + 1] == secret[count : count + 1]:
            count += 1
        if count == len(secret):
            raise AssertionError("found")
        return count

    assert campaign_of(Pretended(act), count=60_000).found


def test_what_is_found_is_kept_in_a_file_that_runs_again(tmp_path: Path) -> None:
    file = corpus.keep("frames", "KeyError a/b.py:read", b"\x00data", folder=tmp_path)
    assert file.read_bytes() == b"\x00data"
    assert file.parent == tmp_path / "frames"
    assert file.name.startswith("keyerror-a-b-py-read-")


def test_the_same_seed_runs_the_same_inputs() -> None:
    def inputs(seed: int) -> list[bytes]:
        seen: list[bytes] = []
        campaign = Campaign(Frames(), seed, strict=False, current=seen.append)
        campaign.run(until=float("inf"), count_max=300, traced=False)
        return seen

    assert inputs(3) == inputs(3)
    assert inputs(3) != inputs(4)


@pytest.mark.parametrize("key", apis.APIS, ids=lambda key: apis.APIS[key].name)
def test_a_request_that_is_meant_to_be_right_is_right_in_every_version(key: int) -> None:
    rng = random.Random(1)
    for each, version in grammar.VERSIONS:
        for number in range(20 if each == key else 0):
            writer = grammar.Writer(rng, grammar.Names(), hostility=0.0)
            frame = writer.frame(key, version, number)
            outcome = Frames().run(b"\x00" + frame)
            assert outcome[0][:2] == (key, version), outcome
