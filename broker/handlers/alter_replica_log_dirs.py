"""AlterReplicaLogDirs, v1-2: there is one log dir (see `broker.handlers.describe_log_dirs`). KIP-113.

Every partition lies in it, so who wants one there has it already, and there is no other to move it
to. Behind a barrier (P8), so that a new topic is not unknown here.

Errors, per partition: 57 (another dir), 3; 7 when there is no barrier to be had.
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.handlers.describe_log_dirs import log_dir
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def handle(
    node: Node, call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    await node.log_client.barrier()
    own = log_dir(node.settings.store_url)
    results = []
    turns = node.slices.of(call)
    async for wanted in turns.over(request.dirs):
        async for asked in turns.over(wanted.topics):
            topic = node.log_client.machine.topics.by_name(asked.name)
            count = 0 if topic is None else topic.partition_count
            rows = []
            async for partition in turns.over(asked.partitions):
                code = ErrorCode.NONE
                if wanted.path != own:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif not 0 <= partition < count:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                rows.append(_row(partition, code))
            results.append(AlterReplicaLogDirTopicResult(topic_name=asked.name, partitions=rows))
    return AlterReplicaLogDirsResponse(results=results)


def refusal(
    call: Call, request: AlterReplicaLogDirsRequest, error: KafkaError
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=asked.name,
                partitions=[_row(partition, error.code) for partition in asked.partitions],
            )
            for wanted in request.dirs
            for asked in wanted.topics
        ]
    )


API: Final = Api(
    key=apis.ALTER_REPLICA_LOG_DIRS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(Right(Operation.ALTER, Resource.CLUSTER),),
)


def _row(partition_index: int, code: ErrorCode) -> AlterReplicaLogDirPartitionResult:
    return AlterReplicaLogDirPartitionResult(partition_index=partition_index, error_code=code)
