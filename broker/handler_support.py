"""Functions that several handlers share: the right to write, answers, barriers that may fail.

Leaves out what one API alone needs.
"""

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, TypeVar

from broker.calls.call import Call
from broker.calls.outcomes import accepted, forget, outcome_of, wait_for
from broker.calls.shares import Ledger, Owner, owner_of
from broker.config import table_configs
from broker.node import Node, PartitionRange
from broker.sasl.delegation import Delegation
from coordinator.commands.entries import CreateTopic, Outcome, Rejected
from coordinator.commands.rights_commands import (
    BINDINGS_PER_COMMAND_MAX,
    RIGHTS_LEVEL,
    AclBinding,
)
from coordinator.commands.table_commands import TABLES_LEVEL, GrowTopic, SetSubjectRules
from coordinator.commands.token_commands import TokenCommand
from coordinator.log.metadata_log import LogError
from coordinator.proposer import COMMAND_BYTES_MAX
from coordinator.tables.administration.delegation_tokens import DelegationToken
from coordinator.tables.partition import Partition
from coordinator.tables.schemas import GLOBAL
from coordinator.tables.topics import TOPIC_PARTITIONS_MAX
from protocol.errors import ErrorCode, KafkaError
from protocol.types import Incarnation

ThingT = TypeVar("ThingT", bound=Hashable)

NO_REPLICAS: Final = "The manual partition assignment includes an empty replica list."
UNKNOWN_BROKER: Final = (
    "The manual partition assignment includes broker {}, but no such broker is registered."
)
REPEATED_BROKER: Final = "The manual partition assignment includes the broker {} more than once."
TOPIC_OPERATIONS: Final = 0b1101_1111_1000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, as bits of
their numbers: all that can be done to a topic."""
AGREEMENT_MS: Final = 10_000
"""How long the answer to a change of rights waits for the agents that have not applied it yet."""
PART_BYTES_MAX: Final = COMMAND_BYTES_MAX - 100
"""Of the ACLs in one command."""
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""


def refuse_tables_of_some(node: Node, names: Iterable[str]) -> None:
    """Configs of tables are for clusters all of whose agents know them: one that does not would
    let records go that are held for the export, and tells exporters nothing of what is set."""
    if any(name.startswith(table_configs.PREFIX) for name in names):
        refuse_beside_older(node, TABLES_LEVEL)


def refuse_beside_older(node: Node, level: int) -> None:
    """Raises KafkaError while an agent is live that does not know the commands of this level."""
    if not node.log_client.machine.incarnations.all_support(level):
        reason = "An agent of an older release is live; try again when all are of this one."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)


def refuse_without_authorizer(node: Node, reason: str = "No Authorizer is configured.") -> None:
    """Raises KafkaError where nobody asks for rights."""
    if node.rights is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, reason)


def binding_parts(bindings: Sequence[AclBinding]) -> list[tuple[AclBinding, ...]]:
    """ACLs in as few commands as they fit into."""
    parts: list[tuple[AclBinding, ...]] = []
    part: list[AclBinding] = []
    size = 0
    for binding in bindings:
        # A character takes at most four bytes, and what is no text a few.
        of_one = 4 * (len(binding.name) + len(binding.principal) + len(binding.host)) + 20
        if part and (len(part) == BINDINGS_PER_COMMAND_MAX or size + of_one > PART_BYTES_MAX):
            parts.append(tuple(part))
            part, size = [], 0
        part.append(binding)
        size += of_one
    return [*parts, tuple(part)] if part else parts


def partition_of(node: Node, topic_name: str, index: int) -> Partition | None:
    """The partition, as far as this replica knows."""
    machine = node.log_client.machine
    topic = machine.topics.by_name(topic_name)
    return None if topic is None else machine.partitions.get(topic.topic_id, index)


def shut_out_older(node: Node, names: Iterable[str], incarnation: Incarnation) -> None:
    """Called before the first config of a table is set: proposes a command that changes nothing,
    but is of this release. One of an older release that was away meanwhile can then read neither log
    nor snapshots, instead of coming back and letting go of records that are held."""
    of_tables = any(name.startswith(table_configs.PREFIX) for name in names)
    if of_tables and node.log_client.machine.schemas.is_untouched:
        forget(node.log_client.propose(SetSubjectRules(GLOBAL, None, None), incarnation))


def propose_partitions(
    node: Node,
    call: Call,
    command: CreateTopic | GrowTopic,
    added: PartitionRange,
    incarnation: Incarnation,
) -> asyncio.Future[Outcome]:
    """Propose what makes these partitions. Raises KafkaError when the client has no share left."""
    owner = owner_of(call.connection.peer)
    name, _, count = added
    configs = command.configs if isinstance(command, CreateTopic) else ()
    byte_count = require_configs(node, owner, name, configs)
    if count <= TOPIC_PARTITIONS_MAX:  # Else the log says what is wrong.
        node.partition_shares.require(owner, count)
    future = node.log_client.propose(command, incarnation)
    count_proposal(node.partition_shares, owner, added, count, future)
    if byte_count:
        count_proposal(node.config_shares, owner, name, byte_count, future)
    return future


def charge_mutations(call: Call, partitions: int, *, strict_since: int) -> None:
    """So many partitions are to be made or deleted (KIP-599). Raises KafkaError when the client's quota
    is used up; before `strict_since` its connection only waits."""
    if call.usage is not None:
        call.usage.mutate(partitions, strict=call.version >= strict_since)


def require_configs(
    node: Node, owner: Owner, name: str, configs: Iterable[tuple[str, str | None]]
) -> int:
    """By how many bytes a topic's configs grow. Raises KafkaError when the client has no share
    left of those."""
    topic = node.log_client.machine.topics.by_name(name)
    before = {} if topic is None else topic.configs
    growth = 0
    for key, value in configs:
        if value is not None:
            growth += len(value) - len(before[key]) if key in before else len(key) + len(value)
    if growth > 0:
        node.config_shares.require(owner, growth)
    return max(growth, 0)


def count_proposal(
    shares: Ledger[ThingT], owner: Owner, thing: ThingT, size: int, future: asyncio.Future[Outcome]
) -> None:
    """Have what was proposed count for its client, until it is known what became of it."""

    def settle(done: asyncio.Future[Outcome]) -> None:
        failed = done.cancelled() or done.exception() is not None
        made = not failed and not isinstance(done.result(), Rejected)
        shares.settle(owner, thing, size, made=made)

    shares.begin(owner, size)
    future.add_done_callback(settle)


def live_incarnation(node: Node, code: ErrorCode) -> Incarnation:
    """The incarnation to write under. Raises KafkaError(code) when none is proven (P5)."""
    incarnation = node.log_client.incarnation()
    if incarnation is None:
        raise KafkaError(code, "this agent has no session in the metadata log at the moment")
    return incarnation


async def caught_up(node: Node) -> bool:
    """A barrier if it can be had; False when the log does not answer.

    For answers that another agent may contradict but that are better old than missing (P16).
    Without a proven session the wait would be in vain, so it is not begun.
    """
    if node.log_client.incarnation() is None:
        return False
    try:
        await node.log_client.barrier()
    except LogError:
        node.stats.barriers_failed += 1
        return False
    return True


def refuse_token_requests(call: Call) -> None:
    """Raises KafkaError where delegation tokens may not be asked for: of whom it is not known who it
    is, or who came by a token itself (KIP-48)."""
    connection = call.connection
    is_nobody = connection.authentication is None and connection.requester.is_anonymous
    if is_nobody or connection.requester.by_token:
        reason = (
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on"
            " delegation token authenticated channels."
        )
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, reason)


def delegation_of(node: Node) -> Delegation:
    """Raises KafkaError where delegation tokens are not served."""
    if node.delegation is None:
        reason = "Delegation Token feature is not enabled."
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, reason)
    return node.delegation


async def token_shown(node: Node, call: Call, shown: bytes) -> DelegationToken:
    """The token whose HMAC the requester shows, which it may renew, behind a barrier.

    Raises KafkaError, LogError.
    """
    delegation = delegation_of(node)
    await node.log_client.barrier()
    found: DelegationToken | None = None
    async for token in node.slices.of(call).over(list(node.log_client.machine.delegation_tokens)):
        if delegation.is_of(token, shown):
            found = token
    if found is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "There is no such token.")
    if found.has_ended(node.now_ms()):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "The token has expired.")
    if not found.may_be_renewed_by(call.connection.requester.principal):
        reason = "Neither owner nor renewer of the token."
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, reason)
    return found


async def change_token(node: Node, command: TokenCommand) -> bool:
    """Have a token changed; whether every agent knows of it in time. Raises KafkaError."""
    incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
    refuse_beside_older(node, RIGHTS_LEVEL)
    future = node.log_client.propose(command, incarnation)
    await wait_for([future], AGREEMENT_MS)
    accepted(outcome_of(future, ErrorCode.NOT_CONTROLLER))
    position = node.log_client.machine.delegation_tokens.version
    return await node.rights_agreement.reached(position, timeout_ms=AGREEMENT_MS)
