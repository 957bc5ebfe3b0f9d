"""`frazil txn`: list, describe and abort transactions, find those that hang; over Kafka's protocol.

KIP-664. Works on any cluster that speaks it. An abort writes markers as Kafka's own tool does
(WriteTxnMarkers); agents of Frazil take the first one as the wish to give up the whole
transaction, whose producer then learns that it was aborted. On Apache Kafka markers end it in
their partitions only, and are meant for transactions that hang.

On Frazil no transaction can hang: one entry of the log ends it in all of its partitions.

Leaves out: formatting (`broker.reports.txn_report`).
"""

import json
from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

from broker.cli.command_result import CommandResult, ToolError
from broker.cli.kafka_client import TRANSACTION, ClientError, KafkaClient, check
from broker.cli.routing import all_of, by_agent, by_topic, leaders, told
from broker.reports import txn_report
from broker.reports.group_report import CoordinatorView, Partition
from broker.reports.txn_report import ONGOING, OpenView
from broker.transactions.views import OFFSETS_TOPIC, offsets_partition
from protocol import apis, messages
from protocol.errors import ErrorCode

T = TypeVar("T")

DURATION_SINCE: Final = 1
PATTERN_SINCE: Final = 2
"""Versions of ListTransactions (KIP-994, KIP-1152)."""
UNFINISHED: Final = frozenset({ONGOING, "PrepareCommit", "PrepareAbort"})
"""States of transactions that are open, or being ended."""
TIME_MS_END: Final = 253_402_300_800_000
"""The year 10000, from which on times are not written."""


class TransactionFilter(NamedTuple):
    """Which transactional ids to list; nothing given: all."""

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int | None = None
    pattern: str | None = None


async def list_transactions(
    client: KafkaClient, wanted: TransactionFilter, *, as_json: bool = False
) -> CommandResult:
    """Those of all agents. When some do not answer, those of the others, and a failure."""
    found: dict[str, tuple[messages.ListedTransaction, int]] = {}

    async def attempt() -> None:
        async def ask(node: int) -> None:
            for row in await _listed(client, node, wanted):
                found[row.transactional_id] = (row, node)

        await all_of(map(ask, client.brokers))

    failures = []
    try:
        await _told("the cluster does not list them", client.until_done(attempt))
    except ClientError as error:
        failures.append(f"some transactional ids may be missing: {error}")
    if failures and not found:
        return CommandResult([], failures=failures)
    if as_json:
        listed = json.dumps(txn_report.list_json(found.values()))
        return CommandResult([listed], failures=failures)
    if not found and wanted != TransactionFilter():
        return CommandResult(["no transactional id is like that"])
    return CommandResult(txn_report.list_lines(found.values()), failures=failures)


async def _listed(
    client: KafkaClient, node: int, wanted: TransactionFilter
) -> list[messages.ListedTransaction]:
    states = list(wanted.states)
    if wanted.longer_than_ms is not None and not states:
        # The filter by duration lets pass what is not open at all.
        states = sorted(UNFINISHED)
    request = messages.ListTransactionsRequest(
        state_filters=states,
        producer_id_filters=list(wanted.producer_ids),
        duration_filter=-1 if wanted.longer_than_ms is None else wanted.longer_than_ms,
        transactional_id_pattern=wanted.pattern,
    )
    oldest = 0 if wanted.longer_than_ms is None else DURATION_SINCE
    oldest = oldest if wanted.pattern is None else PATTERN_SINCE
    answer = await client.ask(apis.LIST_TRANSACTIONS, request, node=node, oldest=oldest)
    if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
        raise ToolError(f'"{wanted.pattern}" is not a regular expression (RE2)')
    check(answer.error_code, f"{client.brokers[node]} cannot list its transactions")
    rows: list[messages.ListedTransaction] = answer.transaction_states
    return rows


async def describe(
    client: KafkaClient, transactional_id: str, *, now_ms: int, as_json: bool = False
) -> CommandResult:
    """One transactional id, and what takes part in its transaction. Raises ToolError."""
    row, coordinator = await _described(client, transactional_id)
    groups: dict[int, list[str]] = {}
    wanted = txn_report.offsets_partitions(row)
    if wanted:
        groups = await _groups(client, wanted)
    if as_json:
        return CommandResult([json.dumps(txn_report.describe_json(row, coordinator, groups))])
    lines = txn_report.describe_lines(row, coordinator, groups, now_ms=now_ms, at=time_text)
    return CommandResult(lines)


async def _described(
    client: KafkaClient, transactional_id: str
) -> tuple[messages.DescribedTransaction, CoordinatorView]:
    request = messages.DescribeTransactionsRequest(transactional_ids=[transactional_id])

    async def attempt() -> tuple[messages.DescribedTransaction, CoordinatorView]:
        node = await client.find_coordinator(transactional_id, key_type=TRANSACTION)
        answer = await client.ask(apis.DESCRIBE_TRANSACTIONS, request, node=node)
        (row,) = answer.transaction_states
        if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise ToolError(
                f'there is no transactional id "{transactional_id}" (frazil txn list shows all)'
            )
        check(row.error_code)
        return row, CoordinatorView(node, *client.brokers[node])

    return await _told(f'transactional id "{transactional_id}"', client.until_done(attempt))


async def _groups(client: KafkaClient, partitions: Collection[int]) -> dict[int, list[str]]:
    """Groups that would have their offsets in these partitions of Kafka's topic, if it has 50."""
    found: defaultdict[int, set[str]] = defaultdict(set)

    async def ask(node: int) -> None:
        answer = await client.ask(apis.LIST_GROUPS, messages.ListGroupsRequest(), node=node)
        check(answer.error_code, f"{client.brokers[node]} cannot list its groups")
        for row in answer.groups:
            partition = offsets_partition(row.group_id)
            if partition in partitions:
                found[partition].add(row.group_id)

    async def attempt() -> None:
        await all_of(map(ask, client.brokers))

    await _told("groups are not listed", client.until_done(attempt))
    return {partition: sorted(names) for partition, names in found.items()}


async def abort(client: KafkaClient, transactional_id: str) -> CommandResult:
    """End the open transaction of an id. Raises ToolError."""
    row, _ = await _described(client, transactional_id)
    if row.transaction_state != ONGOING:
        raise ToolError(
            f'transactional id "{transactional_id}" has no open transaction'
            f" ({row.transaction_state})"
        )
    partitions = [
        (topic.topic, partition) for topic in row.topics for partition in topic.partitions
    ]
    if not partitions:
        raise ToolError(
            f'nothing takes part in the transaction of "{transactional_id}" yet:'
            " it ends by its timeout, or when its producer is started again"
        )
    await _mark(client, partitions, producer_id=row.producer_id, epoch=row.producer_epoch)
    return CommandResult([f'the transaction of "{transactional_id}" is aborted'])


async def abort_in(
    client: KafkaClient,
    where: Partition,
    *,
    start_offset: int | None = None,
    producer_id: int | None = None,
) -> CommandResult:
    """End the transaction that is open in a partition, by its start or its producer.

    Raises ToolError.
    """
    topic, partition = where
    found = [
        row
        for row in await _open_in(client, [where])
        if start_offset in (None, row.start_offset) and producer_id in (None, row.producer_id)
    ]
    if not found:
        raise ToolError(f"no such transaction is open in {topic}:{partition}")
    for row in found:
        await _mark(
            client,
            [where],
            producer_id=row.producer_id,
            epoch=row.epoch,
            coordinator_epoch=row.coordinator_epoch,
        )
    return CommandResult(
        [
            f"the transaction of producer {row.producer_id} is aborted, in {topic}:{partition} at least"
            for row in found
        ]
    )


async def _mark(
    client: KafkaClient,
    partitions: Collection[Partition],
    *,
    producer_id: int,
    epoch: int,
    coordinator_epoch: int = 0,
) -> None:
    """Write markers of an abort, one agent after the other. Raises ToolError."""
    done = False

    async def ask(node: int, wanted: Sequence[Partition]) -> None:
        nonlocal done
        marker = messages.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[
                messages.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(wanted).items()
            ],
            coordinator_epoch=max(coordinator_epoch, 0),
        )
        request = messages.WriteTxnMarkersRequest(markers=[marker])
        answer = await client.ask(apis.WRITE_TXN_MARKERS, request, node=node)
        for marked in answer.markers:
            for topic in marked.topics:
                for row in topic.partitions:
                    # On Frazil the first marker has ended it everywhere.
                    if not (done and row.error_code in _ENDED):
                        check(row.error_code, f"{topic.name}:{row.partition_index}")
                        done = True

    async def attempt() -> None:
        there = await leaders(client, {topic for topic, _ in partitions})
        by_node: defaultdict[int, list[Partition]] = defaultdict(list)
        for where in partitions:
            if where in there:
                by_node[there[where]].append(where)
            elif where[0] == OFFSETS_TOPIC:
                # Frazil has no such topic; any of its agents knows which group is meant.
                by_node[min(client.brokers)].append(where)
        if not by_node:
            raise ToolError("none of its topics is there any more")
        for item in by_node.items():
            await ask(*item)

    await _told("the transaction is not aborted", client.until_done(attempt))


_ENDED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE})


async def find_hanging(
    client: KafkaClient,
    topics: Collection[str] | None,
    *,
    longer_than_ms: int,
    now_ms: int,
    as_json: bool = False,
) -> CommandResult:
    """Transactions that are open in a partition and that no coordinator knows of. Raises ToolError.

    `topics`: where to look, None for all. `longer_than_ms`: leave alone what wrote since.
    """
    there = await client.until_done(lambda: leaders(client, topics))
    for name in topics or ():
        if not any(topic == name for topic, _ in there):
            raise ToolError(f'there is no topic "{name}"')
    old = [
        row for row in await _open_in(client, there) if now_ms - row.last_timestamp > longer_than_ms
    ]
    owners = await _owners(client, {row.producer_id for row in old}) if old else {}
    hanging = []
    for row in old:
        transactional_id = owners.get(row.producer_id)
        if transactional_id is None or not await _takes_part(client, transactional_id, row.where):
            hanging.append(row._replace(transactional_id=transactional_id))
    if as_json:
        return CommandResult([json.dumps(txn_report.hanging_json(hanging))])
    return CommandResult(txn_report.hanging_lines(hanging, time_text))


async def _owners(client: KafkaClient, producer_ids: Collection[int]) -> dict[int, str]:
    """Transactional ids by producer id."""
    wanted = TransactionFilter(producer_ids=sorted(producer_ids))
    found: dict[int, str] = {}

    async def attempt() -> None:
        for rows in await all_of(_listed(client, node, wanted) for node in client.brokers):
            found.update({row.producer_id: row.transactional_id for row in rows})

    await _told("the cluster does not list them", client.until_done(attempt))
    return found


async def _takes_part(client: KafkaClient, transactional_id: str, where: Partition) -> bool:
    """Whether the coordinator knows of an open transaction there, or one that is being ended."""
    try:
        row, _ = await _described(client, transactional_id)
    except ToolError:
        return False
    if row.transaction_state not in UNFINISHED:
        return False
    topic, partition = where
    return any(each.topic == topic and partition in each.partitions for each in row.topics)


async def _open_in(client: KafkaClient, partitions: Iterable[Partition]) -> list[OpenView]:
    """Transactions that are open in these partitions. Raises ToolError."""
    wanted = sorted(partitions)

    async def ask(node: int, some: list[Partition]) -> list[OpenView]:
        request = messages.DescribeProducersRequest(
            topics=[
                messages.DescribeProducersTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(some).items()
            ]
        )
        answer = await client.ask(apis.DESCRIBE_PRODUCERS, request, node=node)
        found = []
        for topic in answer.topics:
            for part in topic.partitions:
                name = f"{topic.name}:{part.partition_index}"
                check(part.error_code, f"{name}: {part.error_message or 'not told'}")
                found += [
                    OpenView(
                        where=(topic.name, part.partition_index),
                        producer_id=row.producer_id,
                        epoch=row.producer_epoch,
                        coordinator_epoch=row.coordinator_epoch,
                        start_offset=row.current_txn_start_offset,
                        last_timestamp=row.last_timestamp,
                    )
                    for row in part.active_producers
                    if row.current_txn_start_offset >= 0
                ]
        return found

    async def attempt() -> list[OpenView]:
        there = await leaders(client, {topic for topic, _ in wanted})
        for topic, partition in wanted:
            if (topic, partition) not in there:
                raise ToolError(f"there is no partition {topic}:{partition}")
        answers = await all_of(ask(*item) for item in by_agent(wanted, there).items())
        return [row for answer in answers for row in answer]

    return await _told("producers are not told", client.until_done(attempt))


async def _told(about: str, work: Awaitable[T]) -> T:
    return await told(about, work, txn_report.WORDS)


def time_text(ms: int) -> str | None:
    """2026-01-31T08:00:00Z; None for what is no time."""
    if not 0 <= ms < TIME_MS_END:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
