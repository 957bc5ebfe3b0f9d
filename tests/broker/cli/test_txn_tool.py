"""`frazil txn` and `frazil feature`: how they go about a cluster, also one that is not well.

The cluster is faked (`fake_cluster`). Live transactions, on Kafka and on Frazil, are in
tests/clients/test_txn_tools.py.
"""

import functools
import json
from collections.abc import Callable

import pytest

from broker.cli import feature_tool, txn_tool
from broker.cli.command_result import ToolError
from broker.cli.feature_tool import Level
from broker.cli.kafka_client import ClientError
from broker.cli.txn_tool import TransactionFilter
from broker.transactions.views import offsets_partition
from protocol import apis, messages
from protocol.errors import ErrorCode
from tests.broker.fake_cluster import SILENCE, FakeCluster, listed, on_cluster, once, per_partition

NOW_MS = 1_900_000_000_000
MINUTE_MS = 60_000


def transactions(
    *ids: str, state: str = "Ongoing", error: ErrorCode = ErrorCode.NONE
) -> messages.ListTransactionsResponse:
    return messages.ListTransactionsResponse(
        error_code=error,
        transaction_states=[
            messages.ListedTransaction(
                transactional_id=each, producer_id=7, transaction_state=state
            )
            for each in ids
        ],
    )


def described(
    partitions: dict[str, list[int]],
    *,
    state: str = "Ongoing",
    started_ms: int = NOW_MS - 12_000,
    error: ErrorCode = ErrorCode.NONE,
) -> messages.DescribeTransactionsResponse:
    row = messages.DescribedTransaction(
        error_code=error,
        transactional_id="pay",
        transaction_state=state,
        transaction_timeout_ms=MINUTE_MS,
        transaction_start_time_ms=started_ms,
        producer_id=7,
        producer_epoch=3,
        topics=[
            messages.TransactionTopic(topic=topic, partitions=indexes)
            for topic, indexes in partitions.items()
        ],
    )
    return messages.DescribeTransactionsResponse(transaction_states=[row])


def producers(
    *states: messages.ProducerState,
) -> Callable[[messages.DescribeProducersRequest], messages.DescribeProducersResponse]:
    """In orders:0; other partitions have none."""

    def answer(request: messages.DescribeProducersRequest) -> messages.DescribeProducersResponse:
        topics = per_partition(
            request.topics,
            messages.DescribedProducersTopic,
            lambda index: messages.DescribedProducersPartition(
                partition_index=index, active_producers=list(states) if index == 0 else []
            ),
        )
        return messages.DescribeProducersResponse(topics=topics)

    return answer


def state_of(producer_id: int, *, start: int = 40, written_ms: int = 0) -> messages.ProducerState:
    return messages.ProducerState(
        producer_id=producer_id,
        producer_epoch=3,
        last_timestamp=written_ms,
        coordinator_epoch=-1,
        current_txn_start_offset=start,
    )


def marking(
    *codes: ErrorCode,
) -> Callable[[messages.WriteTxnMarkersRequest], messages.WriteTxnMarkersResponse]:
    """Answers the requests with these codes, one each, then with NONE."""
    left = list(codes)

    def answer(request: messages.WriteTxnMarkersRequest) -> messages.WriteTxnMarkersResponse:
        code = left.pop(0) if left else ErrorCode.NONE
        partition = functools.partial(messages.WritableTxnMarkerPartitionResult, error_code=code)
        markers = [
            messages.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=per_partition(
                    marker.topics,
                    messages.WritableTxnMarkerTopicResult,
                    lambda index: partition(partition_index=index),
                ),
            )
            for marker in request.markers
        ]
        return messages.WriteTxnMarkersResponse(markers=markers)

    return answer


def markers(cluster: FakeCluster) -> list[messages.WritableTxnMarker]:
    """All that agents were sent."""
    return [each for asked in cluster.requests[apis.WRITE_TXN_MARKERS] for each in asked.markers]


async def test_transactional_ids_of_all_agents_are_listed() -> None:
    async with on_cluster(agents=2) as (client, cluster):
        for number, agent in cluster.agents.items():
            agent.answers[apis.LIST_TRANSACTIONS] = transactions(f"t{number}")
        said = await txn_tool.list_transactions(client, TransactionFilter())
        assert [line.split() for line in said.lines[1:]] == [
            ["t1", "Ongoing", "7", "1"],
            ["t2", "Ongoing", "7", "2"],
        ]
        assert not said.failures


async def test_programs_are_told_of_transactional_ids_in_json() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.LIST_TRANSACTIONS] = transactions("b", "a")
        (line,) = (
            await txn_tool.list_transactions(client, TransactionFilter(), as_json=True)
        ).lines
        assert json.loads(line) == [
            {"transactional_id": name, "state": "Ongoing", "producer_id": 7, "coordinator": 1}
            for name in ("a", "b")
        ]


async def test_filters_are_sent_and_none_that_fits_is_told() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.LIST_TRANSACTIONS] = transactions()
        wanted = TransactionFilter(("Empty",), (7,), 5, "pay.*")
        said = await txn_tool.list_transactions(client, wanted)
        assert said.lines == ["no transactional id is like that"]
        said = await txn_tool.list_transactions(client, TransactionFilter())
        assert said.lines == ["there are no transactional ids"]
    assert cluster.requests[apis.LIST_TRANSACTIONS] == [
        messages.ListTransactionsRequest(
            state_filters=["Empty"],
            producer_id_filters=[7],
            duration_filter=5,
            transactional_id_pattern="pay.*",
        ),
        messages.ListTransactionsRequest(),
    ]


async def test_what_is_open_for_long_is_looked_for_among_what_is_open() -> None:
    """Kafka's filter by duration also lets pass ids that have no transaction at all."""
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.LIST_TRANSACTIONS] = transactions()
        await txn_tool.list_transactions(client, TransactionFilter(longer_than_ms=5))
    (request,) = cluster.requests[apis.LIST_TRANSACTIONS]
    assert set(request.state_filters) == {"Ongoing", "PrepareCommit", "PrepareAbort"}


async def test_a_filter_that_a_cluster_does_not_know_is_not_left_out() -> None:
    def older(cluster: FakeCluster) -> None:
        cluster.answers[apis.LIST_TRANSACTIONS] = transactions("a")
        cluster.agents[1].ranges[apis.LIST_TRANSACTIONS] = (0, 0)

    async with on_cluster(prepare=older) as (client, _cluster):
        assert len((await txn_tool.list_transactions(client, TransactionFilter())).lines) == 2
        for wanted in (TransactionFilter(pattern="a"), TransactionFilter(longer_than_ms=1)):
            with pytest.raises(ToolError, match="serves ListTransactions in no version"):
                await txn_tool.list_transactions(client, wanted)


async def test_what_is_no_regular_expression_is_said_so() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.LIST_TRANSACTIONS] = transactions(
            error=ErrorCode.INVALID_REGULAR_EXPRESSION
        )
        with pytest.raises(ToolError, match=r'"\[" is not a regular expression'):
            await txn_tool.list_transactions(client, TransactionFilter(pattern="["))


async def test_transactional_ids_that_may_be_missing_are_told() -> None:
    async with on_cluster(agents=2, timeout_ms=3000) as (client, cluster):
        cluster.answers[apis.LIST_TRANSACTIONS] = transactions("a")
        cluster.agents[2].answers[apis.LIST_TRANSACTIONS] = SILENCE
        said = await txn_tool.list_transactions(client, TransactionFilter())
        assert [line.split()[0] for line in said.lines[1:]] == ["a"]
        (failure,) = said.failures
        assert "some transactional ids may be missing: 127.0.0.1:" in failure


async def test_a_transaction_is_described_with_partitions_and_groups() -> None:
    async with on_cluster() as (client, cluster):
        offsets = {"__consumer_offsets": [offsets_partition("readers")]}
        cluster.answers[apis.DESCRIBE_TRANSACTIONS] = described({"orders": [0, 1], **offsets})
        cluster.answers[apis.LIST_GROUPS] = listed("readers", "others")
        first, _, *rest = (await txn_tool.describe(client, "pay", now_ms=NOW_MS)).lines
        assert first.startswith(
            "pay: Ongoing, producer 7 at epoch 3, timeout 60000 ms,"
            " started 2030-03-17T17:46:28Z (12 s ago), coordinator 1 at 127.0.0.1:"
        )
        assert rest == [
            "partitions: orders(0-1)",
            f"offsets: of readers (__consumer_offsets-{offsets_partition('readers')})",
        ]
        said = await txn_tool.describe(client, "pay", now_ms=NOW_MS, as_json=True)
        told = json.loads(said.lines[0])
        assert told["coordinator"].pop("port") == cluster.agents[1].port
        assert told == {
            "transactional_id": "pay",
            "state": "Ongoing",
            "producer_id": 7,
            "producer_epoch": 3,
            "timeout_ms": 60_000,
            "started_ms": NOW_MS - 12_000,
            "coordinator": {"node_id": 1, "host": "127.0.0.1"},
            "partitions": [
                {"topic": "orders", "partition": 0},
                {"topic": "orders", "partition": 1},
            ],
            "offsets": [
                {"partition": offsets_partition("readers"), "groups": ["readers"]},
            ],
        }


async def test_an_id_that_has_never_had_a_transaction_is_described() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.DESCRIBE_TRANSACTIONS] = described({}, state="Empty", started_ms=-1)
        (line,) = (await txn_tool.describe(client, "pay", now_ms=NOW_MS)).lines
        assert "Empty, producer 7 at epoch 3, timeout 60000 ms, coordinator" in line


async def test_an_id_that_is_not_there_is_not_described() -> None:
    async with on_cluster() as (client, cluster):
        missing = described({}, error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        cluster.answers[apis.DESCRIBE_TRANSACTIONS] = missing
        with pytest.raises(ToolError, match='there is no transactional id "pay"'):
            await txn_tool.describe(client, "pay", now_ms=NOW_MS)


async def test_a_coordinator_that_moves_is_found_again() -> None:
    async with on_cluster(agents=2) as (client, cluster):

        def moved(_request: object) -> object:
            cluster.coordinator = 2
            return described({}, error=ErrorCode.NOT_COORDINATOR)

        cluster.answers[apis.DESCRIBE_TRANSACTIONS] = described({}, state="Empty")
        cluster.agents[1].answers[apis.DESCRIBE_TRANSACTIONS] = moved
        (line,) = (await txn_tool.describe(client, "pay", now_ms=NOW_MS)).lines
        assert "coordinator 2 at" in line


async def test_an_abort_is_a_marker_in_every_partition() -> None:
    async with on_cluster(agents=2) as (client, cluster):
        cluster.answers[apis.DESCRIBE_TRANSACTIONS] = described(
            {"orders": [0, 1], "gone": [0], "__consumer_offsets": [4]}
        )
        cluster.answers[apis.WRITE_TXN_MARKERS] = marking()
        said = await txn_tool.abort(client, "pay")
        assert said.lines == ['the transaction of "pay" is aborted']
    taken = markers(cluster)
    # orders:0 is with agent 1, orders:1 with agent 2.
    assert [cluster.agents[each].count(apis.WRITE_TXN_MARKERS) for each in (1, 2)] == [1, 1]
    assert [(each.producer_id, each.producer_epoch) for each in taken] == [(7, 3), (7, 3)]
    assert not any(each.transaction_result for each in taken)
    # What Frazil tells of groups is not a topic that it has.
    assert [{topic.name: topic.partition_indexes for topic in each.topics} for each in taken] == [
        {"orders": [0], "__consumer_offsets": [4]},
        {"orders": [1]},
    ]


async def test_what_the_first_marker_ended_everywhere_is_no_failure() -> None:
    """As agents of Frazil do it: the second marker finds nothing open, or a newer epoch."""

    async with on_cluster(agents=2) as (client, cluster):
        cluster.answers[apis.DESCRIBE_TRANSACTIONS] = described({"orders": [0, 1]})
        codes = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH
        cluster.answers[apis.WRITE_TXN_MARKERS] = marking(*codes)
        assert (await txn_tool.abort(client, "pay")).lines


async def test_a_transaction_that_ended_meanwhile_is_said_so() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.DESCRIBE_TRANSACTIONS] = described({"orders": [0]})
        cluster.answers[apis.WRITE_TXN_MARKERS] = marking(ErrorCode.INVALID_PRODUCER_EPOCH)
        with pytest.raises(ToolError, match="is not aborted: it has ended meanwhile"):
            await txn_tool.abort(client, "pay")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (described({}, error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), "there is no transactional id"),
        (described({}, state="CompleteCommit"), "no open transaction .CompleteCommit"),
        (described({}), "nothing takes part in the transaction"),
        (described({"gone": [4]}), "none of its topics is there any more"),
    ],
    ids=["unknown", "ended", "empty", "topic gone"],
)
async def test_what_cannot_be_aborted_is_said_so(answer: object, words: str) -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.DESCRIBE_TRANSACTIONS] = answer
        with pytest.raises(ToolError, match=words):
            await txn_tool.abort(client, "pay")


@pytest.mark.parametrize("which", [{"start_offset": 50}, {"producer_id": 8}])
async def test_a_transaction_in_a_partition_is_aborted_by_its_start_or_producer(
    which: dict[str, int],
) -> None:
    async with on_cluster() as (client, cluster):
        open_ones = state_of(7), state_of(8, start=50), state_of(9, start=-1)
        cluster.answers[apis.DESCRIBE_PRODUCERS] = producers(*open_ones)
        cluster.answers[apis.WRITE_TXN_MARKERS] = marking()
        said = await txn_tool.abort_in(client, ("orders", 0), **which)
        assert said.lines == ["the transaction of producer 8 is aborted, in orders:0 at least"]
    assert [(each.producer_id, each.coordinator_epoch) for each in markers(cluster)] == [(8, 0)]


async def test_a_partition_without_such_a_transaction_is_said_so() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.DESCRIBE_PRODUCERS] = producers(state_of(7), state_of(8, start=-1))
        for producer_id in (8, 9):
            with pytest.raises(ToolError, match="no such transaction is open in orders:0"):
                await txn_tool.abort_in(client, ("orders", 0), producer_id=producer_id)
        with pytest.raises(ToolError, match="there is no partition orders:2"):
            await txn_tool.abort_in(client, ("orders", 2), producer_id=7)


@pytest.mark.parametrize(
    ("owners", "description", "hangs", "owner"),
    [
        (transactions(), described({}), True, "-"),
        (transactions("pay"), described({"orders": [1]}), True, "pay"),
        (transactions("pay"), described({"orders": [0]}, state="CompleteAbort"), True, "pay"),
        (transactions("pay"), described({"orders": [0]}), False, ""),
        (transactions("pay"), described({"orders": [0]}, state="PrepareCommit"), False, ""),
    ],
    ids=["unknown", "elsewhere", "ended", "open", "ending"],
)
async def test_a_transaction_hangs_that_its_coordinator_knows_nothing_of(
    owners: object, description: object, hangs: bool, owner: str
) -> None:
    async with on_cluster() as (client, cluster):
        young = NOW_MS - 15 * MINUTE_MS
        cluster.answers[apis.DESCRIBE_PRODUCERS] = producers(
            state_of(7, written_ms=young - 1), state_of(8, written_ms=young)
        )
        cluster.answers[apis.LIST_TRANSACTIONS] = owners
        cluster.answers[apis.DESCRIBE_TRANSACTIONS] = description
        said = await txn_tool.find_hanging(
            client, ["orders"], longer_than_ms=15 * MINUTE_MS, now_ms=NOW_MS
        )
        if not hangs:
            assert said.lines == ["no transaction hangs"]
            return
        (row,) = [line.split() for line in said.lines[1:]]
        assert row == ["orders", "0", "7", "3", "40", "2030-03-17T17:31:39Z", owner]


async def test_programs_are_told_in_json_what_hangs() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.DESCRIBE_PRODUCERS] = producers(state_of(7, written_ms=0))
        cluster.answers[apis.LIST_TRANSACTIONS] = transactions()
        (line,) = (
            await txn_tool.find_hanging(
                client, ["orders"], longer_than_ms=1, now_ms=NOW_MS, as_json=True
            )
        ).lines
    assert json.loads(line) == [
        {
            "topic": "orders",
            "partition": 0,
            "producer_id": 7,
            "producer_epoch": 3,
            "start_offset": 40,
            "last_timestamp_ms": 0,
            "transactional_id": None,
        }
    ]


async def test_a_topic_to_look_in_has_to_be_there() -> None:
    async with on_cluster() as (client, _cluster):
        with pytest.raises(ToolError, match='there is no topic "gone"'):
            await txn_tool.find_hanging(client, ["gone"], longer_than_ms=0, now_ms=NOW_MS)


async def test_features_are_described_also_those_at_level_zero() -> None:
    def told(cluster: FakeCluster) -> None:
        supported = {"transaction.version": (0, 2), "kraft.version": (0, 1)}
        cluster.agents[1].features = messages.ApiVersionsResponse(
            supported_features=[
                messages.SupportedFeatureKey(name=name, min_version=least, max_version=most)
                for name, (least, most) in supported.items()
            ],
            finalized_features_epoch=17,
            finalized_features=[
                messages.FinalizedFeatureKey(
                    name=name, min_version_level=level, max_version_level=level
                )
                for name, level in {"transaction.version": 2, "newer.version": 3}.items()
            ],
        )

    async with on_cluster(prepare=told) as (client, _cluster):
        _, *rows, empty, epoch = (await feature_tool.describe(client)).lines
        assert [row.split() for row in rows] == [
            ["kraft.version", "0", "1", "0"],
            ["newer.version", "-", "-", "3"],
            ["transaction.version", "0", "2", "2"],
        ]
        assert (empty, epoch) == ("", "epoch 17")
        (line,) = (await feature_tool.describe(client, as_json=True)).lines
    told_of = json.loads(line)
    assert told_of["epoch"] == 17
    newer = {"name": "newer.version", "least": None, "most": None, "level": 3}
    assert told_of["features"][1] == newer


async def test_levels_are_asked_for_together_and_told_when_they_hold() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.UPDATE_FEATURES] = once(
            messages.UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER),
            messages.UpdateFeaturesResponse(),
        )
        wanted = [Level("transaction.version", 1), Level("group.version", 0)]
        said = await feature_tool.change(
            client, wanted, kind=feature_tool.SAFE_DOWNGRADE, dry_run=True
        )
        assert said.lines == [
            "transaction.version could be at level 1",
            "group.version could be at level 0",
        ]
    _, request = cluster.requests[apis.UPDATE_FEATURES]
    assert request.validate_only
    assert [(row.feature, row.upgrade_type) for row in request.feature_updates] == [
        ("transaction.version", 2),
        ("group.version", 2),
    ]


async def test_a_level_that_is_refused_is_said_with_the_reason() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.UPDATE_FEATURES] = messages.UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="an agent is too old"
        )
        with pytest.raises(ToolError, match="nothing is changed: an agent is too old"):
            await feature_tool.change(
                client,
                [Level("transaction.version", 2)],
                kind=feature_tool.UPGRADE,
                dry_run=False,
            )


@pytest.mark.parametrize("text", ["", "transaction.version", "=2", "a=", "a=-1", "a=x", "a=40000"])
def test_what_is_no_level_is_said_so(text: str) -> None:
    with pytest.raises(ValueError, match="is not a level"):
        feature_tool.level(text)


async def test_a_cluster_that_does_not_answer_is_said_so() -> None:
    async with on_cluster(timeout_ms=3000) as (client, cluster):
        cluster.answers[apis.DESCRIBE_TRANSACTIONS] = SILENCE
        with pytest.raises(ClientError, match="does not answer"):
            await txn_tool.describe(client, "pay", now_ms=NOW_MS)
