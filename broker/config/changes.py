"""Computes what AlterConfigs and IncrementalAlterConfigs change of a resource's configs. Pure.

KIP-133 replaces all that was set; KIP-339 changes single configs, and items of lists. Both end
in the same: names with their new values, null for those that go, only where something changes.
So two clients that change different configs at the same time do not undo each other.

Left out: two appends to one list at the same time; the later one then has not seen the earlier.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from protocol.errors import ErrorCode, KafkaError

Changes = tuple[tuple[str, str | None], ...]
"""Sorted by name; null removes."""


class OpType(IntEnum):
    """`org.apache.kafka.clients.admin.AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS: Final = frozenset(OpType)


class AlterConfigOp(NamedTuple):
    """One change of an incremental request."""

    name: str
    operation: int
    value: str | None


class ConfigRules(NamedTuple):
    """The checks of a kind of resource for its configs."""

    check: Callable[[str, str], str | None]
    """Why a value may not be set, None when it may."""
    check_together: Callable[[Mapping[str, str]], str | None]
    """The same for all that would be set afterwards, each right alone. May raise KafkaError itself,
    where Kafka has another code."""
    is_list: Callable[[str], bool]
    inherited: Callable[[str], str]
    """The value of a list that is not set."""


def replaced(
    before: Mapping[str, str], wanted: Sequence[tuple[str, str | None]], rules: ConfigRules
) -> Changes:
    """AlterConfigs: from now on what is wanted is set, and nothing else.

    Raises KafkaError: INVALID_REQUEST for a name given twice or without value, INVALID_CONFIG.
    """
    _refuse_doubtful(
        [name for name, _ in wanted], [name for name, value in wanted if value is None]
    )
    after = {name: value for name, value in wanted if value is not None}
    return _difference(before, after, rules)


def changed(
    before: Mapping[str, str], operations: Sequence[AlterConfigOp], rules: ConfigRules
) -> Changes:
    """IncrementalAlterConfigs: what is not named stays as it is. Raises KafkaError likewise."""
    unknown = [str(op.operation) for op in operations if op.operation not in _OPERATIONS]
    if unknown:
        reason = f"Unknown config operation: {', '.join(unknown)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    refuse_doubtful(operations)
    after = dict(before)
    for name, operation, value in operations:
        if operation == OpType.DELETE:
            after.pop(name, None)
        else:
            assert value is not None
            after[name] = value
            if operation != OpType.SET:
                after[name] = _changed_list(before, name, OpType(operation), value, rules)
    return _difference(before, after, rules)


def refuse_doubtful(operations: Sequence[AlterConfigOp]) -> None:
    """Raises KafkaError for a name given twice, or without a value that it must have."""
    without_value = [
        op.name for op in operations if op.value is None and op.operation != OpType.DELETE
    ]
    _refuse_doubtful([op.name for op in operations], without_value)


def _refuse_doubtful(names: list[str], without_value: list[str]) -> None:
    if len(names) > len({*names}):
        reason = "Error due to duplicate config keys"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if without_value:
        reason = f"Null value not supported for : {', '.join(without_value)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _changed_list(
    before: Mapping[str, str], name: str, operation: OpType, value: str, rules: ConfigRules
) -> str:
    if not rules.is_list(name):
        reason = f"Can't {operation.name} to key {name} because its type is not LIST."
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
    items = _items(before[name] if name in before else rules.inherited(name))
    named = _items(value)
    if operation is OpType.SUBTRACT:
        gone = frozenset(named)  # A request may name very many.
        return ",".join(item for item in items if item not in gone)
    return ",".join(dict.fromkeys([*items, *named]))


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]


def _difference(before: Mapping[str, str], after: Mapping[str, str], rules: ConfigRules) -> Changes:
    changes: dict[str, str | None] = {name: None for name in before if name not in after}
    for name, value in after.items():
        if before.get(name) != value:
            if (reason := rules.check(name, value)) is not None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
            changes[name] = value
    if changes and (reason := rules.check_together(after)) is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
    return tuple(sorted(changes.items()))
