"""The periodic jobs that forget transactional ids and producers that are not used any more.

What is old, and whose turn it is, are `broker.transactions.expiry`'s to say; it is proposed in slices,
each decided again by `apply`. A sweep that ends early (the log is away, there is no session) leaves
the rest to the next one, here or elsewhere.

Invariant: between two awaits a bounded number of rows is looked at.
"""

import asyncio
import logging
from itertools import islice
from typing import Final

from broker.node import Node
from broker.transactions import expiry
from broker.transactions.expiry import Slices
from coordinator.commands.entries import Command, Rejected
from coordinator.commands.transaction_commands import ExpireProducers, ExpireTransactionalIds
from coordinator.log.metadata_log import LogError
from coordinator.proposer import NotDoneError
from coordinator.tables.partitions import Partition
from coordinator.tables.transactions import TRANSACTIONAL_IDS_MAX, TransactionRow
from txn.producers import updated_ms

logger = logging.getLogger(__name__)

ROWS_PER_TURN_MAX: Final = 2_000
"""Of the loop."""
IDS_PER_TURN_MAX: Final = 200
"""Old ones, each of which is hashed to find its coordinator."""
CROWDED_CHECK_S: Final = 10.0
SAMPLED_OF: Final = 64
"""One producer of so many is looked at to find which ones are the oldest."""


async def run(node: Node) -> None:
    """Sweep now and then, for ever."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_run_ids(node), name="expiry of transactional ids")
        tasks.create_task(_run_producers(node), name="expiry of producers")
        tasks.create_task(_run_crowded(node), name="expiry of the oldest")


async def _run_ids(node: Node) -> None:
    kafka = node.kafka
    while True:
        await asyncio.sleep(kafka.transaction_remove_expired_transaction_cleanup_interval_ms / 1000)
        await sweep_ids(node)


async def _run_producers(node: Node) -> None:
    while True:
        await asyncio.sleep(node.kafka.producer_id_expiration_check_interval_ms / 1000)
        await sweep_producers(node)


async def _run_crowded(node: Node) -> None:
    while True:
        await asyncio.sleep(CROWDED_CHECK_S)
        if expiry.is_crowded(node.log_client.machine.partitions.window_count):
            await sweep_oldest_producers(node)
        if expiry.has_many_ids(node.log_client.machine.transactions):
            await sweep_oldest_ids(node)


async def sweep_ids(node: Node) -> None:
    """Go through the transactional ids that are coordinated here, once."""
    expiration_ms = node.kafka.transactional_id_expiration_ms
    await _expire_ids(node, await _old_ids(node, expiration_ms), expiration_ms)


async def sweep_oldest_ids(node: Node) -> None:
    """Forget the transactional ids coordinated here that have been idle longest, before their time."""
    kafka, machine = node.kafka, node.log_client.machine
    idle_ms = expiry.sampled_idle_ms(list(machine.transactions), time_ms=machine.time_ms)
    expiration_ms = expiry.pressed_expiration_ms(
        idle_ms,
        expiration_ms=kafka.transactional_id_expiration_ms,
        floor_ms=expiry.ids_floor_ms(timeout_ms_max=kafka.transaction_max_timeout_ms),
    )
    if max(idle_ms, default=0) < expiration_ms:
        return
    count = len(machine.transactions)
    old = await _old_ids(node, expiration_ms)
    before_ms = machine.time_ms - kafka.transactional_id_expiration_ms
    early = [row for row in old if row.changed_ms > before_ms]
    await _expire_ids(node, old, expiration_ms)
    gone = sum([machine.transactions.get(row.transactional_id) is not row for row in early])
    stats = node.transactions.stats
    if gone and not stats.ids_expired_early:
        logger.warning(
            "there are %d transactional ids of at most %d: %d that nobody used for %.1f h are forgotten"
            " before transactional.id.expiration.ms, and more when there are so many again"
            " (frazil_transactional_ids_expired_early_total). Have clients use the same ids again (Flink:"
            " TransactionNamingStrategy.POOLING), or lower transactional.id.expiration.ms",
            count,
            TRANSACTIONAL_IDS_MAX,
            gone,
            expiration_ms / 3_600_000,
        )
    stats.ids_expired_early += gone


async def _old_ids(node: Node, expiration_ms: int) -> list[TransactionRow]:
    """Those coordinated here that nobody has used for so long, the oldest first."""
    machine = node.log_client.machine
    old: list[TransactionRow] = []
    looked_at = 0
    for row in list(machine.transactions):
        looked_at += 1
        if expiry.is_old(row, time_ms=machine.time_ms, expiration_ms=expiration_ms):
            looked_at += ROWS_PER_TURN_MAX // IDS_PER_TURN_MAX
            if node.transactions.coordinates(row.transactional_id):
                old.append(row)
        if looked_at >= ROWS_PER_TURN_MAX:
            looked_at = 0
            await asyncio.sleep(0)
    return sorted(old, key=lambda row: row.changed_ms)


async def _expire_ids(node: Node, rows: list[TransactionRow], expiration_ms: int) -> None:
    for some in expiry.id_slices([row.transactional_id for row in rows]):
        if not await _propose(node, ExpireTransactionalIds(expiration_ms, some)):
            return


async def sweep_oldest_producers(node: Node) -> None:
    """Forget the producers that have been idle longest, before their time."""
    idle_ms: list[int] = []
    looked_at = 0
    for at, partition in enumerate(list(node.log_client.machine.partitions.with_windows())):
        windows = partition.windows or {}
        time_ms = node.log_client.machine.time_ms
        sampled = islice(windows.values(), at % SAMPLED_OF, None, SAMPLED_OF)
        idle_ms += [time_ms - updated_ms(window) for window in sampled]
        looked_at += len(windows)
        if looked_at >= SAMPLED_OF * ROWS_PER_TURN_MAX:
            looked_at = 0
            await asyncio.sleep(0)
    expiration_ms = node.kafka.producer_id_expiration_ms
    await sweep_producers(node, expiry.pressed_expiration_ms(idle_ms, expiration_ms=expiration_ms))


async def sweep_producers(node: Node, expiration_ms: int | None = None) -> None:
    """Go through the partitions that are this agent's to look after, once."""
    if expiration_ms is None:
        expiration_ms = node.kafka.producer_id_expiration_ms
    slices = Slices()
    looked_at = 0
    for partition in list(node.log_client.machine.partitions.with_windows()):
        looked_at += 1
        if _is_mine(node, partition):
            looked_at += await _add_idle(node, partition, slices, expiration_ms)
        while some := slices.take():
            if not await _propose(node, ExpireProducers(expiration_ms, some)):
                return
        if looked_at >= ROWS_PER_TURN_MAX:
            looked_at = 0
            await asyncio.sleep(0)
    if some := slices.take(least=1):
        await _propose(node, ExpireProducers(expiration_ms, some))


async def _add_idle(node: Node, partition: Partition, slices: Slices, expiration_ms: int) -> int:
    """Idle producers of one partition, to `slices`; how many were looked at since the last turn."""
    windows = list((partition.windows or {}).items())
    for first in range(0, len(windows), ROWS_PER_TURN_MAX):
        if first > 0:
            await asyncio.sleep(0)
        producer_ids = expiry.idle(
            windows[first : first + ROWS_PER_TURN_MAX],
            started=partition.open_transactions,
            time_ms=node.log_client.machine.time_ms,
            expiration_ms=expiration_ms,
        )
        slices.add(partition.topic_id, partition.partition, producer_ids)
    return len(windows) % ROWS_PER_TURN_MAX


def _is_mine(node: Node, partition: Partition) -> bool:
    """Whether this agent looks after the producers of the partition."""
    node_ids = [row.node_id for row in node.log_client.machine.incarnations]
    return expiry.has_share(
        partition.topic_id,
        partition.partition,
        node_id=node.log_client.node_id(),
        node_ids=node_ids,
    )


async def _propose(node: Node, command: Command) -> bool:
    """False when there is no sense in going on."""
    incarnation = node.log_client.incarnation()
    if incarnation is None:
        return False
    try:
        outcome = await asyncio.shield(node.log_client.propose(command, incarnation))
    except (NotDoneError, LogError) as error:
        logger.info("forgetting what is not used any more waits: %s", error)
        return False
    return not isinstance(outcome, Rejected)
