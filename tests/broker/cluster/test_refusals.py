"""What an operator is told of objects that the store refuses to delete, and who lives with it."""

import asyncio
import logging

import pytest

from broker.cli.doctor import examine
from broker.cluster.refusals import REASONS_MAX, Refusals
from broker.config.settings import load
from broker.jobs.host import HostStats
from coordinator.commands.job_commands import JobKind
from storage.stores.object_store import DeleteRefusal, StoreRefusedError
from tests.broker.agents import serving
from tests.kit.faults import refused
from tests.kit.sockets import Place


def test_a_reason_is_told_once_whatever_object_it_names() -> None:
    refusals = Refusals()
    first = [DeleteRefusal(key, f"no right to {key}") for key in ("a/1", "a/2", "a/3")]
    assert list(refusals.news(first)) == [
        "the object store refuses to delete a/1 and 2 more: no right to a/1"
    ]
    assert list(refusals.news([DeleteRefusal("a/4", "no right to a/4")])) == []
    assert list(refusals.news([DeleteRefusal("a/4", "held")])) == [
        "the object store refuses to delete a/4: held"
    ]


def test_a_store_with_ever_other_reasons_is_told_of_so_many_times() -> None:
    refusals = Refusals()
    refused = [DeleteRefusal("a", f"request {number}") for number in range(10 * REASONS_MAX)]
    assert len(list(refusals.news(refused))) == REASONS_MAX
    assert list(refusals.news(refused)) == []


def test_what_a_worker_before_was_refused_is_not_counted_with_the_present_one() -> None:
    stats = HostStats()
    stats.worker.jobs[JobKind.COLLECT].refused = 7
    stats.begin_worker()
    assert stats.job(JobKind.COLLECT).refused == 0
    stats.worker.jobs[JobKind.COLLECT].refused = 2
    assert stats.job(JobKind.COLLECT).refused == 2


@pytest.mark.promise("P16")
@pytest.mark.parametrize("whole", [False, True], ids=["each object", "the whole call"])
def test_an_agent_starts_over_a_store_that_deletes_nothing_and_says_so(
    whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        place = Place()
        store = place.store()
        if whole:
            store.before["delete"] = refused(StoreRefusedError("deletes nothing"))
        else:
            place.objects.kept["clock/"] = "deletes nothing"
        async with serving(place, store=store) as running:
            client = await running.connect()
            assert await client.create("t") == 0

    asyncio.run(main())
    told = [message for message in caplog.messages if "refuses to delete clock/" in message]
    assert len(told) == 1
    assert "deletes nothing" in told[0]


def test_doctor_tells_of_a_store_that_deletes_nothing(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place()
    place.objects.kept["doctor/"] = "AccessDenied"
    monkeypatch.setattr("broker.cli.doctor.open_store", lambda *_args, **_kwargs: place.objects)
    defaults = {"store": "memory://", "log": f"sqlite://{tmp_path}/log.db", "http": "off"}
    defaults["listen"] = "127.0.0.1:0"
    loaded = load(defaults=defaults, toml=None, environ={}, flags=())
    bad = [finding.text for finding in asyncio.run(examine(loaded, tell=print)) if finding.bad]
    assert len(bad) == 1
    assert "refuses to delete: AccessDenied" in bad[0]
