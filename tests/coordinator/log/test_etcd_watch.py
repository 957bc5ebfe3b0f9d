"""A watch whose call ends in odd ways: whoever reads hears of it and is never cancelled by it."""

import asyncio

import pytest
from grpc.aio import EOF

from coordinator.log import etcd_client
from coordinator.log import etcd_pb2 as pb
from coordinator.log.etcd_client import Endpoint, EtcdClient
from coordinator.log.metadata_log import LogUnavailableError

pytestmark = pytest.mark.real_loop


class LateCall:
    """As gRPC's calls behave: cancelled, it still gives what had come, then cancels its reader."""

    def __init__(self) -> None:
        self._cancelled = asyncio.Event()
        self._given = False

    async def read(self) -> pb.WatchResponse:
        await self._cancelled.wait()
        if self._given:
            raise asyncio.CancelledError
        self._given = True
        return pb.WatchResponse(events=[pb.Event(kv=pb.KeyValue(key=b"k"))])

    def cancel(self) -> bool:
        self._cancelled.set()
        return True


class EndingCall:
    """Ends without an error."""

    async def read(self) -> object:
        return EOF

    async def details(self) -> str:
        return "bye"

    def cancel(self) -> bool:
        return False


class AnsweringCall:
    """Answers requests for progress, and knows of nothing new."""

    def __init__(self, *revisions: int) -> None:
        self._revisions = list(revisions)

    async def read(self) -> object:
        if not self._revisions:
            return EOF
        await asyncio.sleep(etcd_client.PROGRESS_S)
        return pb.WatchResponse(header=pb.ResponseHeader(revision=self._revisions.pop(0)))

    async def details(self) -> str:
        return "bye"

    def cancel(self) -> bool:
        return True


def client_whose_watch_is(call: object) -> EtcdClient:
    client = EtcdClient([Endpoint("127.0.0.1", 1)])
    client._members[0].stream = lambda _method: lambda *_args, **_kwargs: call
    return client


async def watch(client: EtcdClient) -> list[bytes]:
    keys: list[bytes] = []
    async for pairs in client.watch(key=b"a", range_end=b"z", start_revision=1):
        keys += [pair.key for pair in pairs]
        # More than one reading of a call that is cancelled would be a circle.
        assert len(keys) < 2
    return keys


async def test_watch_given_up_while_its_answer_came_does_not_cancel_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So it is in the first turn of a process that was stopped: its replica must follow on.
    monkeypatch.setattr(etcd_client, "QUIET_S_MAX", 0.01)

    with pytest.raises(LogUnavailableError):
        await watch(client_whose_watch_is(LateCall()))


async def test_reader_that_is_cancelled_itself_ends_by_that() -> None:
    reading = asyncio.ensure_future(watch(client_whose_watch_is(LateCall())))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()


async def test_watch_that_ends_without_an_error_is_unavailable() -> None:
    with pytest.raises(LogUnavailableError, match="bye"):
        await watch(client_whose_watch_is(EndingCall()))


@pytest.mark.parametrize(
    ("revisions", "why"),
    [((5, 5, 5, 5), "is behind"), ((5, 5, 6, 6), "bye")],
    ids=["stays behind", "catches up"],
)
async def test_watch_on_a_member_that_lacks_what_others_have_answered_is_given_up(
    monkeypatch: pytest.MonkeyPatch, revisions: tuple[int, ...], why: str
) -> None:
    monkeypatch.setattr(etcd_client, "PROGRESS_S", 0.01)
    client = client_whose_watch_is(AnsweringCall(*revisions))
    client._revision_seen = 6

    with pytest.raises(LogUnavailableError, match=why):
        await watch(client)
