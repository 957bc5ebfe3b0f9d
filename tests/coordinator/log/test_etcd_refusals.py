"""A member of etcd that refuses what others do, as a learner does: the next endpoint is asked."""

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from coordinator.log import etcd_pb2 as pb
from coordinator.log.etcd_client import Endpoint, EtcdClient
from coordinator.log.metadata_log import LogRefusedError, LogUnavailableError

pytestmark = pytest.mark.real_loop

LEARNER = "etcdserver: rpc not supported for learner"
NOT_LEADER = "etcdserver: not leader"


def refusing(details: str):
    async def call(_request: object, **_: object) -> None:
        code = grpc.StatusCode.FAILED_PRECONDITION
        raise AioRpcError(code, Metadata(), Metadata(), details=details)

    return call


async def answering(_request: object, **_: object) -> pb.RangeResponse:
    return pb.RangeResponse(header=pb.ResponseHeader(revision=7))


def client_over(*calls) -> EtcdClient:
    """Each is a member's."""
    client = EtcdClient([Endpoint("127.0.0.1", 1 + at) for at in range(len(calls))])
    for member, call in zip(client._members, calls, strict=True):
        member.unary = lambda _method, call=call: call
    return client


@pytest.mark.parametrize("details", [LEARNER, NOT_LEADER])
async def test_what_one_member_alone_refuses_another_is_asked(details: str) -> None:
    client = client_over(refusing(details), answering)
    assert (await client.range(pb.RangeRequest(key=b"k"))).header.revision == 7


async def test_a_learner_that_is_the_only_endpoint_may_be_promoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.log.etcd_client.CALL_S_MAX", 0.01)
    with pytest.raises(LogUnavailableError, match="learner"):
        await client_over(refusing(LEARNER)).range(pb.RangeRequest(key=b"k"))


async def test_what_every_member_would_refuse_is_refused() -> None:
    client = client_over(refusing("etcdserver: user name is empty"), answering)
    with pytest.raises(LogRefusedError, match="a user and a password"):
        await client.range(pb.RangeRequest(key=b"k"))
