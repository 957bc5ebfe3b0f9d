"""Agents that speak Kafka's protocol and answer what a test says: for tools. In virtual time."""

import asyncio
import contextlib
import functools
import random
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from broker.cli.kafka_client import Address, KafkaClient
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.framing import parse_header, response_head
from tests.kit.loop import current
from tests.sim.network import Network

SILENCE = object()
"""As an answer: none, and the connection stays."""
HANG_UP = object()
"""As an answer: the connection ends."""


class FakeAgent:
    """One agent. `answers`: by API key, a response or a function from request to response."""

    def __init__(self, cluster: "FakeCluster", node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.answers: dict[int, object] = {}
        self.asked: list[tuple[int, int]] = []
        """Keys and versions of all requests."""
        self.ranges = {key: (api.min_version, api.max_version) for key, api in apis.APIS.items()}
        self.features = messages.ApiVersionsResponse()
        """Told by ApiVersions, with the ranges."""
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    def count(self, key: int) -> int:
        return sum(asked == key for asked, _ in self.asked)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            contextlib.closing(writer),
            contextlib.suppress(asyncio.IncompleteReadError, ConnectionError),
        ):
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                header = parse_header(await reader.readexactly(length))
                key, version = header.api_key, header.version
                self.asked.append((key, version))
                request = messages.decode_request(key, version, header.body)
                self.cluster.requests.setdefault(key, []).append(request)
                answer = self._answer(key, request)
                if answer is HANG_UP:
                    break
                if answer is not SILENCE:
                    body = messages.encode_response(key, version, answer)
                    head = response_head(key, version, header.correlation_id, len(body))
                    writer.write(head + body)

    def _answer(self, key: int, request: object) -> object:
        if key == apis.API_VERSIONS:
            api_keys = [
                messages.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.ranges.items()
            ]
            return replace(self.features, api_keys=api_keys)
        answer = self.answers.get(key, self.cluster.answers.get(key))
        return answer(request) if callable(answer) else answer


class FakeCluster:
    """Agents 1, 2, …; by default agent 1 coordinates all groups and has all partitions."""

    def __init__(self, agents: int, topics: dict[str, int]) -> None:
        self.agents = {number: FakeAgent(self, number) for number in range(1, agents + 1)}
        self.topics = topics
        self.coordinator = 1
        self.starts = 0
        self.ends = 20
        self.at_time = -1
        self.requests: dict[int, list] = {}
        """What all agents were asked, by API key."""
        self.answers: dict[int, object] = {
            apis.METADATA: self._metadata,
            apis.FIND_COORDINATOR: self._coordinator_of,
            apis.LIST_OFFSETS: self._list_offsets,
            apis.CONSUMER_GROUP_DESCRIBE: consumer_described(ErrorCode.GROUP_ID_NOT_FOUND),
            apis.DESCRIBE_GROUPS: described("Empty"),
            apis.OFFSET_FETCH: fetched({}),
        }

    def _metadata(self, request: messages.MetadataRequest) -> messages.MetadataResponse:
        told = []
        for asked in request.topics or []:
            count = self.topics.get(asked.name or "")
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if count is None else ErrorCode.NONE
            partitions = [
                messages.MetadataResponsePartition(
                    partition_index=number, leader_id=1 + number % len(self.agents)
                )
                for number in range(count or 0)
            ]
            told.append(
                messages.MetadataResponseTopic(
                    name=asked.name, error_code=error, partitions=partitions
                )
            )
        brokers = [
            messages.MetadataResponseBroker(node_id=number, host="127.0.0.1", port=agent.port)
            for number, agent in self.agents.items()
        ]
        return messages.MetadataResponse(brokers=brokers, topics=told)

    def _coordinator_of(self, request: messages.FindCoordinatorRequest) -> object:
        agent = self.agents[self.coordinator]
        found = messages.Coordinator(
            key=request.coordinator_keys[0],
            node_id=agent.node_id,
            host="127.0.0.1",
            port=agent.port,
        )
        return messages.FindCoordinatorResponse(coordinators=[found])

    def _list_offsets(self, request: messages.ListOffsetsRequest) -> messages.ListOffsetsResponse:
        told = {-2: self.starts, -1: self.ends}
        topics = per_partition(
            request.topics,
            messages.ListOffsetsTopicResponse,
            lambda row: messages.ListOffsetsPartitionResponse(
                partition_index=row.partition_index, offset=told.get(row.timestamp, self.at_time)
            ),
        )
        return messages.ListOffsetsResponse(topics=topics)


@contextlib.asynccontextmanager
async def on_cluster(
    *,
    agents: int = 1,
    timeout_ms: int = 5_000,
    prepare: Callable[[FakeCluster], None] = lambda cluster: None,
) -> AsyncIterator[tuple[KafkaClient, FakeCluster]]:
    """A client of running agents; `prepare` comes before it connects."""
    Network(current(), random.Random(1))
    cluster = FakeCluster(agents, {"orders": 2})
    prepare(cluster)
    for agent in cluster.agents.values():
        await agent.start()
    bootstrap = [Address("127.0.0.1", cluster.agents[1].port)]
    try:
        async with KafkaClient(bootstrap, timeout_ms=timeout_ms) as client:
            yield client, cluster
    finally:
        for agent in cluster.agents.values():
            agent.stop()
        # Until the agents have heard that the client is gone.
        await asyncio.sleep(1)


def per_partition(topics: list, topic_of: Callable, partition_of: Callable) -> list:
    """An answer for each partition of these topics, which names it or has a row of its own."""
    return [
        topic_of(
            name=topic.name,
            partitions=[
                partition_of(each)
                for each in getattr(topic, "partitions", None) or topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def once(first: object, then: object) -> Callable[[object], object]:
    """`first` to the first request, `then` to all later ones."""
    left = [first]

    def answer(request: object) -> object:
        chosen = left.pop() if left else then
        return chosen(request) if callable(chosen) else chosen

    return answer


def described(state: str, *, error: ErrorCode = ErrorCode.NONE) -> messages.DescribeGroupsResponse:
    group = messages.DescribedGroup(group_id="g", group_state=state, error_code=error)
    return messages.DescribeGroupsResponse(groups=[group])


def consumer_described(error: ErrorCode) -> messages.ConsumerGroupDescribeResponse:
    group = messages.DescribedConsumerGroup(group_id="g", error_code=error)
    return messages.ConsumerGroupDescribeResponse(groups=[group])


def fetched(offsets: dict[tuple[str, int], int]) -> messages.OffsetFetchResponse:
    rows = [
        messages.OffsetFetchResponseTopic(
            name=topic,
            partitions=[
                messages.OffsetFetchResponsePartition(
                    partition_index=partition, committed_offset=offset
                )
            ],
        )
        for (topic, partition), offset in offsets.items()
    ]
    return messages.OffsetFetchResponse(
        groups=[messages.OffsetFetchResponseGroup(group_id="g", topics=rows)]
    )


def committing(error: ErrorCode) -> Callable[[object], object]:
    def answer(request: messages.OffsetCommitRequest) -> messages.OffsetCommitResponse:
        partition = functools.partial(messages.OffsetCommitResponsePartition, error_code=error)
        topics = per_partition(
            request.topics,
            messages.OffsetCommitResponseTopic,
            lambda row: partition(partition_index=row.partition_index),
        )
        return messages.OffsetCommitResponse(topics=topics)

    return answer


def listed(*names: str, error: ErrorCode = ErrorCode.NONE) -> messages.ListGroupsResponse:
    groups = [
        messages.ListedGroup(
            group_id=name, protocol_type="consumer", group_state="Stable", group_type="Classic"
        )
        for name in names
    ]
    return messages.ListGroupsResponse(error_code=error, groups=groups)


def deleted(error: ErrorCode) -> messages.DeleteGroupsResponse:
    result = messages.DeletableGroupResult(group_id="g", error_code=error)
    return messages.DeleteGroupsResponse(results=[result])
