"""Blocks of producer ids: each id once, asked for early, shared by all that wait."""

import asyncio

import pytest

from broker.transactions.producer_ids import ProducerIds
from coordinator.commands.entries import ProducerIdsAllocated, Rejected
from coordinator.proposer import NotDoneError
from protocol.errors import ErrorCode, KafkaError


class Log:
    """A coordinator that gives blocks when told to."""

    def __init__(self) -> None:
        self.open: list[asyncio.Future] = []
        self.first = 0
        self.at_once = True

    def propose(self, command, incarnation=None):
        future = asyncio.get_running_loop().create_future()
        self.open.append(future)
        if self.at_once:
            asyncio.get_running_loop().call_soon(self.give, command.count)
        return future

    def give(self, count: int) -> None:
        self.open.pop(0).set_result(ProducerIdsAllocated(self.first, count))
        self.first += count


def blocks_of_four() -> tuple[Log, ProducerIds]:
    log = Log()
    return log, ProducerIds(log, block=4)


async def test_ids_come_from_blocks_without_repetition():
    _, ids = blocks_of_four()
    assert [await ids.take() for _ in range(11)] == list(range(11))


async def test_the_next_block_is_asked_for_before_the_last_id_is_given():
    log, ids = blocks_of_four()
    log.at_once = False
    waiting = asyncio.get_running_loop().create_task(ids.take())
    await asyncio.sleep(0.1)
    log.give(4)
    assert await waiting == 0
    assert not log.open
    assert [await ids.take() for _ in range(2)] == [1, 2]
    assert len(log.open) == 1
    assert await ids.take() == 3


async def test_all_that_wait_share_one_request():
    log, ids = blocks_of_four()
    log.at_once = False
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(ids.take()) for _ in range(6)]
        await asyncio.sleep(0.1)
        assert len(log.open) == 1
        log.give(4)
        await asyncio.sleep(0.1)
        assert len(log.open) == 1
        log.give(4)
    assert sorted(task.result() for task in waiting) == list(range(6))


async def test_a_log_that_does_not_answer_is_not_waited_for_for_ever():
    log, ids = blocks_of_four()
    log.at_once = False
    with pytest.raises(KafkaError) as caught:
        await ids.take()
    assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    log.give(4)
    await asyncio.sleep(0.1)
    assert await ids.take() == 0


@pytest.mark.parametrize(
    "answer", [NotDoneError("no session"), Rejected(ErrorCode.UNKNOWN_SERVER_ERROR)]
)
async def test_a_refused_block_is_a_retriable_error(answer):
    def settle(log):
        future = log.open.pop()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    log, ids = blocks_of_four()
    log.at_once = False
    asyncio.get_running_loop().call_later(1, settle, log)
    with pytest.raises(KafkaError) as caught:
        await ids.take()
    assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
