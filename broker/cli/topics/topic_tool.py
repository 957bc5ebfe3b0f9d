"""`frazil topic`: list, create, describe, alter, delete and widen topics, over Kafka's protocol.

Works on any cluster that speaks it, through any of its agents. A request whose answer was lost is sent
again, and what the first one has done counts as done: a topic that was not there before and is there
now has been created, and deletions name a topic by its id, so that a new one of that name stays. Formatting
is in `broker.reports.topic_lines`, records are deleted in `broker.cli.topics.trim_tool`.

Leaves out: replicas assigned by hand (kafka-topics.sh has --replica-assignment).
"""

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from broker.cli.command_result import CommandResult
from broker.cli.groups.group_tool import EARLIEST, LATEST, offsets_at
from broker.cli.kafka_client import ClientError, KafkaClient, PassingError, check
from broker.cli.topics.requests import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    TOLD_WORDS,
    WORDS,
    AnyAgent,
    alter_configs,
    described_configs,
    refusal,
    topic_row,
    topic_rows,
)
from broker.reports import topic_lines
from broker.reports.group_report import Partition, count, error_text
from broker.reports.topic_lines import ConfigView, CreationView
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TOPIC_ID_ZERO

T = TypeVar("T")

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_VERBS = {SET: "set", DELETE: "unset", APPEND: "append", SUBTRACT: "subtract"}


class NewTopic(NamedTuple):
    """What all topics of a command shall be like."""

    partitions: int = -1
    """-1: as many as the cluster gives by itself."""
    replication_factor: int = -1
    configs: Sequence[tuple[str, str]] = ()


class Alteration(NamedTuple):
    """What is to be done with a config."""

    operation: int
    """SET, DELETE, APPEND or SUBTRACT."""
    name: str
    value: str | None = None

    def words(self) -> str:
        verb = _VERBS[self.operation]
        return f"{verb} {self.name}" + ("" if self.value is None else f"={self.value}")


async def list_topics(client: KafkaClient, *, internal: bool, as_json: bool) -> CommandResult:
    """All topics that one may see. Raises ClientError, KafkaError."""
    rows = [
        row
        for row in (await topic_rows(client, None)).values()
        if not row.error_code and (internal or not row.is_internal)
    ]
    if as_json:
        return CommandResult([json.dumps(topic_lines.list_json(rows))])
    return CommandResult(topic_lines.list_lines(rows))


async def create(
    client: KafkaClient,
    names: Iterable[str],
    like: NewTopic,
    *,
    if_not_exists: bool,
    dry_run: bool,
    as_json: bool,
) -> CommandResult:
    """Create topics; one that is refused does not keep others from being created."""
    views, failures = [], []
    for name in dict.fromkeys(names):
        try:
            view = await _create(client, name, like, if_not_exists=if_not_exists, dry_run=dry_run)
        except KafkaError as error:
            words = error_text(error.code, error.message, WORDS)
            sentence = f'topic "{name}" is not created: {words}'
            view = CreationView(name, topic_lines.REFUSED, error=sentence)
        except ClientError as error:
            sentence = f'it is not known whether topic "{name}" is created: {error}'
            view = CreationView(name, topic_lines.UNKNOWN, error=sentence)
        views.append(view)
    failures = [view.error for view in views if view.error is not None]
    if as_json:
        return CommandResult([json.dumps([view._asdict() for view in views])], failures=failures)
    lines = [topic_lines.created_line(view) for view in views]
    return CommandResult([line for line in lines if line is not None], failures=failures)


async def _create(
    client: KafkaClient, name: str, like: NewTopic, *, if_not_exists: bool, dry_run: bool
) -> CreationView:
    """Raises KafkaError, ClientError."""
    configs = [messages.CreatableTopicConfig(name=key, value=value) for key, value in like.configs]
    topic = messages.CreatableTopic(
        name=name,
        num_partitions=like.partitions,
        replication_factor=like.replication_factor,
        configs=configs,
    )
    request = messages.CreateTopicsRequest(
        topics=[topic], timeout_ms=client.request_timeout_ms, validate_only=dry_run
    )
    was_there = await topic_row(client, name) is not None
    agents = AnyAgent(client)
    in_doubt = False

    async def attempt() -> CreationView:
        nonlocal in_doubt
        in_doubt, was_in_doubt = True, in_doubt
        answer = await agents.ask(apis.CREATE_TOPICS, request)
        (result,) = answer.topics
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            there = await topic_row(client, name)
            if there is None and (if_not_exists or was_in_doubt):
                raise PassingError(f'topic "{name}" is there, but not told about yet')
            is_own = was_in_doubt and not (dry_run or was_there) and _is_like(there, like)
            if there is not None and (is_own or if_not_exists):
                return _as_it_is(there, topic_lines.CREATED if is_own else topic_lines.EXISTS)
        in_doubt = was_in_doubt or result.error_code == ErrorCode.REQUEST_TIMED_OUT
        check(result.error_code, result.error_message or "")
        return CreationView(
            name,
            topic_lines.VALID if dry_run else topic_lines.CREATED,
            topic_lines.id_text(result.topic_id),
            *(
                each if each > 0 else None
                for each in (result.num_partitions, result.replication_factor)
            ),
        )

    return await client.until_done(attempt)


def _is_like(there: messages.MetadataResponseTopic | None, like: NewTopic) -> bool:
    """Whether a topic can be the one that was to be created, as far as Metadata tells."""
    return there is not None and like.partitions in (-1, len(there.partitions))


def _as_it_is(row: messages.MetadataResponseTopic, status: str) -> CreationView:
    return CreationView(
        row.name or "",
        status,
        topic_lines.id_text(row.topic_id),
        len(row.partitions),
        topic_lines.replication_factor(row),
    )


async def describe(client: KafkaClient, names: Iterable[str], *, as_json: bool) -> CommandResult:
    """Topics with their partitions' offsets, and the configs that differ from defaults.

    Raises ClientError, ToolError.
    """
    rows = await topic_rows(client, list(dict.fromkeys(names)))
    errors = {name: refusal(row.error_code, words=TOLD_WORDS) for name, row in rows.items()}
    failures = [f'topic "{name}" is not described: {why}' for name, why in errors.items() if why]
    found = {name: row for name, row in rows.items() if errors[name] is None}
    warnings, partitions = _with_leaders(found)
    starts = await offsets_at(client, EARLIEST, partitions)
    ends = await offsets_at(client, LATEST, partitions)
    configs, more = await _set_configs(client, found)
    views = [
        topic_lines.topic_view(row, starts, ends, configs.get(name)) for name, row in found.items()
    ]
    if as_json:
        lines = [json.dumps([topic_lines.describe_json(view) for view in views])]
    else:
        parts = [topic_lines.describe_lines(view) for view in views]
        lines = [line for part in parts for line in ("", *part)][1:]
    return CommandResult(lines, [*warnings, *more], failures)


def _with_leaders(
    rows: Mapping[str, messages.MetadataResponseTopic],
) -> tuple[list[str], list[Partition]]:
    """Warnings, and the partitions whose offsets can be asked for: those of topics led in full."""
    warnings, partitions = [], []
    for name, row in rows.items():
        lost = sorted(each.partition_index for each in row.partitions if each.leader_id < 0)
        if lost:
            numbers = ", ".join(map(str, lost))
            warnings.append(
                f'offsets of topic "{name}" are not told: partition {numbers} has no leader'
            )
        else:
            partitions += [(name, each.partition_index) for each in row.partitions]
    return warnings, partitions


async def _set_configs(
    client: KafkaClient, names: Collection[str]
) -> tuple[dict[str, list[ConfigView]], list[str]]:
    """The configs of each topic that differ from defaults; and warnings for those that are refused."""
    found, warnings = {}, []
    for name, row in (await described_configs(client, names)).items():
        if why := refusal(row.error_code, row.error_message):
            warnings.append(f'configs of topic "{name}" are not told: {why}')
        else:
            found[name] = topic_lines.set_configs(row)
    return found, warnings


async def alter(
    client: KafkaClient,
    names: Iterable[str],
    alterations: Sequence[Alteration],
    *,
    dry_run: bool,
) -> CommandResult:
    """Change configs of topics, each topic's as a whole. Raises KafkaError."""
    names = list(dict.fromkeys(names))
    configs = [
        messages.IncrementalAlterableConfig(
            name=each.name, config_operation=each.operation, value=each.value
        )
        for each in alterations
    ]
    wanted = dict.fromkeys(names, configs)
    done = ", ".join(each.words() for each in alterations)
    try:
        refused = await alter_configs(client, wanted, validate_only=dry_run)
    except ClientError as error:
        topics = ", ".join(names)
        return CommandResult(
            [], failures=[f"it is not known whether topics are altered ({topics}): {error}"]
        )
    would = "would be" if dry_run else "is"
    lines = [f'topic "{name}" {would} altered: {done}' for name in names if name not in refused]
    failures = [
        f'topic "{name}" is not altered: {error_text(error.code, error.message, WORDS)}'
        for name, error in refused.items()
    ]
    return CommandResult(lines, failures=failures)


async def delete(client: KafkaClient, names: Iterable[str], *, if_exists: bool) -> CommandResult:
    """Delete topics with all their records."""
    return await _each(names, "deleted", lambda name: _delete(client, name, if_exists=if_exists))


async def _delete(client: KafkaClient, name: str, *, if_exists: bool) -> str:
    """Delete a topic; the line that says so. Raises KafkaError, ClientError."""
    agents = AnyAgent(client)
    topic_id, was_told, in_doubt = TOPIC_ID_ZERO, False, False

    async def attempt() -> str:
        nonlocal topic_id, was_told, in_doubt
        if not in_doubt:
            row = await topic_row(client, name)
            topic_id, was_told = (TOPIC_ID_ZERO, False) if row is None else (row.topic_id, True)
        # Whom Metadata does not know the server may know: by its name.
        by_name = name if topic_id == TOPIC_ID_ZERO else None
        request = messages.DeleteTopicsRequest(
            topics=[messages.DeleteTopicState(name=by_name, topic_id=topic_id)],
            topic_names=[name],
            timeout_ms=client.request_timeout_ms,
        )
        in_doubt, was_in_doubt = True, in_doubt
        answer = await agents.ask(apis.DELETE_TOPICS, request)
        (result,) = answer.responses
        is_gone = result.error_code in _GONE
        if is_gone and was_in_doubt and was_told:
            return f'topic "{name}" is deleted'
        in_doubt = was_in_doubt or result.error_code == ErrorCode.REQUEST_TIMED_OUT
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
            raise PassingError(f'topic "{name}" has another id than the cluster told')
        if is_gone and if_exists:
            return f'there is no topic "{name}"'
        check(result.error_code, result.error_message or "")
        return f'topic "{name}" is deleted'

    return await client.until_done(attempt)


async def add_partitions(
    client: KafkaClient,
    names: Iterable[str],
    *,
    to: int | None = None,
    by: int | None = None,
    dry_run: bool,
) -> CommandResult:
    """Give topics more partitions, so that they have `to` in all, or `by` more than now."""
    return await _each(
        names,
        "widened",
        lambda name: _widen(client, name, to=to, by=by, dry_run=dry_run),
    )


async def _widen(
    client: KafkaClient, name: str, *, to: int | None, by: int | None, dry_run: bool
) -> str:
    """Widen a topic; the line that says so. Raises KafkaError, ClientError."""
    row = await topic_row(client, name)
    if row is None and by is not None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    before = None if row is None else len(row.partitions)
    wanted = to if to is not None else (before or 0) + (by or 0)
    request = messages.CreatePartitionsRequest(
        topics=[messages.CreatePartitionsTopic(name=name, count=wanted, assignments=None)],
        timeout_ms=client.request_timeout_ms,
        validate_only=dry_run,
    )
    agents = AnyAgent(client)
    in_doubt = False

    async def attempt() -> str:
        nonlocal in_doubt
        in_doubt, was_in_doubt = True, in_doubt
        answer = await agents.ask(apis.CREATE_PARTITIONS, request)
        (result,) = answer.results
        has = f"would have {count(wanted, 'partition')}" if dry_run else f"has {wanted} partitions"
        if result.error_code == ErrorCode.INVALID_PARTITIONS and was_in_doubt:
            now = await topic_row(client, name)
            if now is not None and before is not None and before < wanted == len(now.partitions):
                return f'topic "{name}" {has} now'
        in_doubt = was_in_doubt or result.error_code == ErrorCode.REQUEST_TIMED_OUT
        check(result.error_code, result.error_message or "")
        return f'topic "{name}" {has}' + ("" if dry_run else " now")

    return await client.until_done(attempt)


async def _each(
    names: Iterable[str], done: str, change: Callable[[str], Awaitable[str]]
) -> CommandResult:
    """What `change` says of each topic, else why it is not `done` ("deleted")."""
    lines, failures = [], []
    for name in dict.fromkeys(names):
        try:
            lines.append(await change(name))
        except KafkaError as error:
            words = error_text(error.code, error.message, WORDS)
            failures.append(f'topic "{name}" is not {done}: {words}')
        except ClientError as error:
            failures.append(f'it is not known whether topic "{name}" is {done}: {error}')
    return CommandResult(lines, failures=failures)
