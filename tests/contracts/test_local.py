"""The contracts of LocalLog and LocalStore: what lies on this machine can be done in one hop."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from coordinator.log.etcd import EtcdLog
from coordinator.log.memory import LocalMemoryLog, MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import FirstFailedError, LocalLog, Session, SessionLostError
from coordinator.log.sqlite import SqliteLog
from storage.stores.disk import DiskStore
from storage.stores.memory import MemoryStore
from storage.stores.object_store import (
    LocalStore,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
)
from storage.stores.s3 import S3Store

pytestmark = pytest.mark.real_loop


class Place(NamedTuple):
    log: LocalLog
    store: LocalStore
    session: Session


Places = AbstractAsyncContextManager[Place]


@pytest.fixture(params=["memory", "sqlite and disk"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Places]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Place]:
        log: LocalLog
        store: LocalStore
        if request.param == "memory":
            log, store = LocalMemoryLog(MemoryLogCluster()), MemoryStore()
        else:
            log, store = SqliteLog(tmp_path / "log.db"), DiskStore(tmp_path / "store")
        async with aclosing(log), aclosing(store):
            yield Place(log, store, await log.open(await log.grant(30_000), b"open"))

    return opened


async def numbers(place: Place) -> list[int]:
    """Of the entries that are in."""
    async with aclosing(place.log.tail(0)) as batches, asyncio.timeout(30):
        return [entry.n for entry in await anext(batches)]


def test_only_what_lies_on_this_machine_is_local() -> None:
    assert not issubclass(MemoryLog, LocalLog)
    assert not issubclass(EtcdLog, LocalLog)
    assert not issubclass(S3Store, LocalStore)


@pytest.mark.promise("P1")
async def test_an_object_is_there_once_the_entry_is(places: Callable[[], Places]) -> None:
    async with places() as place:
        put = functools.partial(place.store.put_now, "chunks/a", [b"one", b"two"])
        position = await place.log.append_after(put, place.session, 1, b"names it")
        assert await place.log.head() == position
        assert bytes(await place.store.get("chunks/a")) == b"onetwo"
        assert await place.log.append(place.session, 2, b"next") > position


@pytest.mark.promise("P1")
async def test_what_could_not_be_done_first_leaves_the_number_free(
    places: Callable[[], Places],
) -> None:
    async with places() as place:

        def fail() -> None:
            raise StoreRefusedError("the disk is full")

        with pytest.raises(FirstFailedError, match="the disk is full") as failed:
            await place.log.append_after(fail, place.session, 1, b"never")
        assert isinstance(failed.value.cause, StoreRefusedError)
        assert await numbers(place) == [0]
        await place.log.append(place.session, 1, b"another")
        assert await numbers(place) == [0, 1]


async def test_an_append_repeated_is_in_once_and_does_first_what_it_is_given(
    places: Callable[[], Places],
) -> None:
    async with places() as place:
        done: list[int] = []
        first = await place.log.append_after(lambda: done.append(1), place.session, 1, b"x")
        assert await place.log.append_after(lambda: done.append(2), place.session, 1, b"x") == first
        assert done == [1, 2]
        assert await numbers(place) == [0, 1]


async def test_others_of_the_same_moment_are_in_though_one_failed(
    places: Callable[[], Places],
) -> None:
    async with places() as place:

        def fail() -> None:
            raise StoreRefusedError("no")

        failed, head, _ = await asyncio.gather(
            place.log.append_after(fail, place.session, 1, b"never"),
            place.log.append(place.session, 1, b"beside"),
            place.log.head(),
            return_exceptions=True,
        )
        assert isinstance(failed, FirstFailedError)
        assert head == await place.log.head()


@pytest.mark.promise("P3")
async def test_nothing_is_appended_under_a_session_that_is_gone(
    places: Callable[[], Places],
) -> None:
    async with places() as place:
        await place.log.revoke(place.session.id)
        with pytest.raises(SessionLostError) as lost:
            await place.log.append_after(lambda: None, place.session, 1, b"x")
        assert lost.value.last == 0


async def test_an_object_put_in_the_callers_thread_is_one_like_any_other(
    places: Callable[[], Places],
) -> None:
    async with places() as place:
        await asyncio.to_thread(place.store.put_now, "a/b", [b"same"])
        place.store.put_now("a/b", [b"sa", b"me"])
        assert bytes(await place.store.get("a/b")) == b"same"
        with pytest.raises(ObjectExistsError):
            place.store.put_now("a/b", [b"other"])
        await place.store.delete(["a/b"])
        with pytest.raises(ObjectNotFoundError):
            await place.store.get("a/b")


async def test_a_folder_that_takes_nothing_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = DiskStore(tmp_path / "file" / "store")
    with pytest.raises(StoreRefusedError, match="a part of the path is a file"):
        store.put_now("a", [b""])
