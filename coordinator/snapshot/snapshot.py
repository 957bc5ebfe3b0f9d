"""A snapshot: the whole machine at one position as bytes, and a machine out of them.

Invariants: equal machines give equal bytes, also one that was restored and the one that it was
dumped from. A machine is restored in place: its tables stay the objects that they are, all that
is in them is replaced. Nothing of it is touched before all parts were found to be whole, of one
snapshot and of a known format; should it still fail, the machine is empty again, never half.

Every field of every table is written by the friend module of its family (`tables`, `groups`,
`partitions`, `schemas`, `rights`, `credentials`, `tokens`, `configs`, `eras`, `losses`); whoever adds a field adds it there and
raises `stream.VERSION`.
`tests/coordinator/snapshot/test_fields.py` notices who forgets.

Left out: where snapshots lie (`store`), and when one is made (the job).
"""

import struct
from collections.abc import Generator, Sequence

from coordinator.commands.encoding import CodecError, put_signed, read_signed
from coordinator.machine.machine import Machine
from coordinator.snapshot.configs import dump_configs, has_configs, restore_configs
from coordinator.snapshot.credentials import (
    dump_credentials,
    has_credentials,
    restore_credentials,
)
from coordinator.snapshot.eras import dump_eras, has_eras, restore_eras
from coordinator.snapshot.groups import dump_groups, restore_groups
from coordinator.snapshot.losses import dump_losses, has_losses, restore_losses
from coordinator.snapshot.partitions import (
    dump_objects,
    dump_partitions,
    participants,
    restore_objects,
    restore_partitions,
)
from coordinator.snapshot.rights import dump_rights, has_rights, restore_rights
from coordinator.snapshot.schemas import dump_tables, restore_tables
from coordinator.snapshot.stream import (
    BlockReader,
    BlockWriter,
    PartComparer,
    PartHeader,
    PartWriter,
    SnapshotError,
    checking,
    head_of_all,
)
from coordinator.snapshot.tables import (
    dump_features,
    dump_incarnations,
    dump_jobs,
    dump_pins,
    dump_topics,
    dump_transactions,
    restore_features,
    restore_incarnations,
    restore_jobs,
    restore_pins,
    restore_topics,
    restore_transactions,
)
from coordinator.snapshot.tokens import dump_tokens, has_tokens, restore_tokens
from protocol.types import Buffer

__all__ = ["SnapshotError", "dump", "is_dump_of", "restore", "restoring", "time_ms_of"]


def dump(machine: Machine) -> list[bytes]:
    """The machine as parts of at most `stream.PART_BYTES`."""
    out = PartWriter()
    _write(out, machine)
    return out.parts(machine.position, machine.digest())


def is_dump_of(machine: Machine, parts: Sequence[Buffer]) -> bool:
    """Whether `dump` would give these parts; compares without making them."""
    head = head_of_all(parts)
    if (head.position, head.digest) != (machine.position, machine.digest()):
        return False
    out = PartComparer(parts)
    _write(out, machine)
    return out.are_same()


def _write(out: BlockWriter, machine: Machine) -> None:
    head = bytearray()
    put_signed(head, machine.time_ms)
    out.block(head)
    dump_features(out, machine.features, machine.producer_ids)
    dump_topics(out, machine.topics)
    dump_incarnations(out, machine.incarnations)
    dump_objects(out, machine.objects)
    dump_partitions(out, machine.partitions)
    dump_pins(out, machine.pins)
    dump_groups(out, machine.groups)
    dump_transactions(out, machine.transactions)
    dump_jobs(out, machine.jobs, machine.snapshots)
    losses_follow = has_losses(machine.losses)
    eras_follow = losses_follow or has_eras(machine.eras)
    configs_follow = eras_follow or has_configs(
        machine.client_quotas, machine.dynamic_configs, machine.quota_usage
    )
    tokens_follow = configs_follow or has_tokens(machine.delegation_tokens)
    users_follow = tokens_follow or has_credentials(machine.credentials)
    rights_follow = users_follow or has_rights(machine.acls)
    dump_tables(out, machine.exports, machine.schemas, more_follows=rights_follow)
    dump_rights(out, machine.acls, more_follows=users_follow)
    dump_credentials(out, machine.credentials, more_follows=tokens_follow)
    dump_tokens(out, machine.delegation_tokens, more_follows=configs_follow)
    dump_configs(
        out,
        machine.client_quotas,
        machine.dynamic_configs,
        machine.quota_usage,
        more_follows=eras_follow,
    )
    dump_eras(out, machine.eras, more_follows=losses_follow)
    dump_losses(out, machine.losses)


def restore(machine: Machine, parts: Sequence[Buffer]) -> None:
    """Make the machine what it was when it was dumped. Raises SnapshotError."""
    for _ in restoring(machine, [*parts]):
        pass


def restoring(machine: Machine, parts: list[Buffer]) -> Generator[None, None, None]:
    """`restore` in steps of some ms, so that whoever takes them can let others run between.

    The parts are taken out of the list on the way. Who does not take all steps has an empty
    machine.
    """
    head = yield from checking(parts)
    done = False
    try:
        yield from _fill(machine, head, parts)
        done = True
    except (
        AssertionError,
        CodecError,
        LookupError,
        OverflowError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        raise SnapshotError(
            f"the snapshot at position {head.position} cannot be read: {error!r}"
        ) from error
    finally:
        if not done:
            _empty(machine)


def time_ms_of(parts: Sequence[Buffer]) -> int:
    """Returns the machine's time that the parts of a snapshot name."""
    time_ms, _ = read_signed(BlockReader([*parts]).bytes(), 0)
    return time_ms


def _fill(machine: Machine, head: PartHeader, parts: list[Buffer]) -> Generator[None, None, None]:
    blocks = BlockReader(parts)
    machine.position = head.position
    machine._digest = head.digest
    machine.time_ms, _ = read_signed(blocks.bytes(), 0)
    restore_features(blocks, machine.features, machine.producer_ids)
    restore_topics(blocks, machine.topics)
    restore_incarnations(blocks, machine.incarnations)
    yield
    restore_objects(blocks, machine.objects)
    yield from restore_partitions(blocks, machine.partitions, machine.objects)
    restore_pins(blocks, machine.pins)
    yield from restore_groups(blocks, machine.groups)
    partition = participants(machine.partitions)
    yield from restore_transactions(blocks, machine.transactions, partition)
    restore_jobs(blocks, machine.jobs, machine.snapshots)
    restore_tables(blocks, machine.exports, machine.schemas)
    restore_rights(blocks, machine.acls)
    restore_credentials(blocks, machine.credentials)
    restore_tokens(blocks, machine.delegation_tokens)
    restore_configs(blocks, machine.client_quotas, machine.dynamic_configs, machine.quota_usage)
    restore_eras(blocks, machine.eras)
    restore_losses(blocks, machine.losses)
    blocks.end()


def _empty(machine: Machine) -> None:
    parts: list[Buffer] = [*dump(Machine())]
    for _ in _fill(machine, head_of_all(parts), parts):
        pass
