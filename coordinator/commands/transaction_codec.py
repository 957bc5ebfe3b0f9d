"""Commands about transactions as bytes in an entry.

    InitProducer               transactional id, timeout, producer id, epoch
    AddToTransaction           transactional id, producer id, epoch, instance, connection, places,
                               group ids
    CommitTransactionOffsets   group id, member id, epoch, producer id, epoch, instance, offsets
    EndTransaction             flags, transactional id, producer id, epoch; with a proof: instance,
                               connection, clock
    GiveUpTransaction          flags, transactional id, producer id, epoch, instance
    ExpireTransactionalIds     expiration, ids
    ExpireProducers            expiration; per partition: the topic's id, 0 if it is that of the
                               row before, partition, producer ids as distances
    SetFeatureLevel            feature, level

Places and offsets are laid out by `row_codec`. What a client may have sent can be said, sense or
not: apply refuses it.
"""

from collections.abc import Callable
from typing import Any, Final

from coordinator.commands.encoding import (
    I16,
    U31,
    U63,
    CodecError,
    put_number,
    put_signed,
    put_string,
    put_topic_id,
    put_varint,
    put_zigzag,
    read_number,
    read_signed,
    read_string,
    read_topic_id,
    read_zigzag,
)
from coordinator.commands.entries import Command
from coordinator.commands.row_codec import (
    put_epoch,
    put_offsets,
    put_places,
    read_epoch,
    read_offsets,
    read_places,
)
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    ClientProof,
    CommitTransactionOffsets,
    EndTransaction,
    ExpireProducers,
    ExpireTransactionalIds,
    GiveUpTransaction,
    InitProducer,
    PartitionProducers,
    SetFeatureLevel,
)
from protocol.types import Position, TopicId

# Flags of EndTransaction and of GiveUpTransaction.
_COMMIT = 1
_PROOF = 2
_CHALLENGED = 4
_TIMED_OUT = 1


def _put_producer(out: bytearray, producer_id: int, epoch: int) -> None:
    if epoch not in I16:
        raise CodecError(f"producer epoch {epoch}")
    put_signed(out, producer_id)
    put_zigzag(out, epoch)


def _read_producer(data: bytes, at: int) -> tuple[int, int, int]:
    producer_id, at = read_signed(data, at)
    epoch, at = read_zigzag(data, at)
    if epoch not in I16:
        raise CodecError(f"producer epoch {epoch}")
    return producer_id, epoch, at


def _put_strings(out: bytearray, values: tuple[str, ...]) -> None:
    put_varint(out, len(values))
    for value in values:
        put_string(out, value)


def _read_strings(data: bytes, at: int) -> tuple[tuple[str, ...], int]:
    count, at = read_number(data, at, len(data))
    values = []
    for _ in range(count):
        value, at = read_string(data, at)
        values.append(value)
    return tuple(values), at


# One transactional id.


def _put_init(out: bytearray, command: InitProducer) -> None:
    put_string(out, command.transactional_id)
    put_signed(out, command.timeout_ms)
    _put_producer(out, command.producer_id, command.producer_epoch)


def _read_init(data: bytes, at: int) -> tuple[InitProducer, int]:
    transactional_id, at = read_string(data, at)
    timeout_ms, at = read_signed(data, at)
    producer_id, epoch, at = _read_producer(data, at)
    return InitProducer(transactional_id, timeout_ms, producer_id, epoch), at


def _put_add(out: bytearray, command: AddToTransaction) -> None:
    put_string(out, command.transactional_id)
    _put_producer(out, command.producer_id, command.producer_epoch)
    put_number(out, command.instance, U63)
    put_number(out, command.connection, U63)
    put_places(out, command.partitions)
    _put_strings(out, command.group_ids)


def _read_add(data: bytes, at: int) -> tuple[AddToTransaction, int]:
    transactional_id, at = read_string(data, at)
    producer_id, epoch, at = _read_producer(data, at)
    instance, at = read_number(data, at, U63)
    connection, at = read_number(data, at, U63)
    partitions, at = read_places(data, at)
    group_ids, at = _read_strings(data, at)
    command = AddToTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        instance=instance,
        connection=connection,
        partitions=partitions,
        group_ids=group_ids,
    )
    return command, at


def _put_commit(out: bytearray, command: CommitTransactionOffsets) -> None:
    put_string(out, command.group_id)
    put_string(out, command.member_id)
    put_epoch(out, command.epoch)
    _put_producer(out, command.producer_id, command.producer_epoch)
    put_signed(out, command.instance)
    put_offsets(out, command.offsets)


def _read_commit(data: bytes, at: int) -> tuple[CommitTransactionOffsets, int]:
    group_id, at = read_string(data, at)
    member_id, at = read_string(data, at)
    epoch, at = read_epoch(data, at)
    producer_id, producer_epoch, at = _read_producer(data, at)
    instance, at = read_signed(data, at)
    offsets, at = read_offsets(data, at)
    command = CommitTransactionOffsets(
        group_id=group_id,
        member_id=member_id,
        epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        instance=instance,
        offsets=offsets,
    )
    return command, at


def _put_end(out: bytearray, command: EndTransaction) -> None:
    proof = command.proof
    flags = _COMMIT if command.commit else 0
    if proof is not None:
        flags |= _PROOF | (_CHALLENGED if proof.challenged else 0)
    out.append(flags)
    put_string(out, command.transactional_id)
    _put_producer(out, command.producer_id, command.producer_epoch)
    if proof is not None:
        put_number(out, proof.instance, U63)
        put_number(out, proof.connection, U63)
        put_number(out, proof.clock, U63)


def _read_end(data: bytes, at: int) -> tuple[EndTransaction, int]:
    flags = data[at]
    if flags >= _CHALLENGED << 1 or (flags & _CHALLENGED and not flags & _PROOF):
        raise CodecError(f"an end with flags {flags:#x}")
    transactional_id, at = read_string(data, at + 1)
    producer_id, epoch, at = _read_producer(data, at)
    proof = None
    if flags & _PROOF:
        instance, at = read_number(data, at, U63)
        connection, at = read_number(data, at, U63)
        clock, at = read_number(data, at, U63)
        proof = ClientProof(instance, connection, Position(clock), bool(flags & _CHALLENGED))
    command = EndTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        commit=bool(flags & _COMMIT),
        proof=proof,
    )
    return command, at


def _put_give_up(out: bytearray, command: GiveUpTransaction) -> None:
    out.append(_TIMED_OUT if command.timed_out else 0)
    put_string(out, command.transactional_id)
    _put_producer(out, command.producer_id, command.producer_epoch)
    put_number(out, command.instance, U63)


def _read_give_up(data: bytes, at: int) -> tuple[GiveUpTransaction, int]:
    flags = data[at]
    if flags > _TIMED_OUT:
        raise CodecError(f"a giving up with flags {flags:#x}")
    transactional_id, at = read_string(data, at + 1)
    producer_id, epoch, at = _read_producer(data, at)
    instance, at = read_number(data, at, U63)
    command = GiveUpTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        instance=instance,
        timed_out=bool(flags & _TIMED_OUT),
    )
    return command, at


# Expiry, and features.


def _put_expire_ids(out: bytearray, command: ExpireTransactionalIds) -> None:
    put_number(out, command.expiration_ms, U63)
    _put_strings(out, command.transactional_ids)


def _read_expire_ids(data: bytes, at: int) -> tuple[ExpireTransactionalIds, int]:
    expiration_ms, at = read_number(data, at, U63)
    transactional_ids, at = _read_strings(data, at)
    return ExpireTransactionalIds(expiration_ms, transactional_ids), at


def _put_expire_producers(out: bytearray, command: ExpireProducers) -> None:
    put_number(out, command.expiration_ms, U63)
    put_varint(out, len(command.producers))
    topic_before: TopicId | None = None
    for topic_id, partition, producer_ids in command.producers:
        out.append(topic_id != topic_before)
        if topic_id != topic_before:
            put_topic_id(out, topic_id)
            topic_before = topic_id
        put_number(out, partition, U31)
        put_varint(out, len(producer_ids))
        before = 0
        for producer_id in producer_ids:
            if not 0 <= producer_id <= U63:
                raise CodecError(f"producer {producer_id}")
            put_zigzag(out, producer_id - before)
            before = producer_id


def _read_expire_producers(data: bytes, at: int) -> tuple[ExpireProducers, int]:
    expiration_ms, at = read_number(data, at, U63)
    count, at = read_number(data, at, len(data))
    producers = []
    topic_id: TopicId | None = None
    for _ in range(count):
        if data[at] > 1:
            raise CodecError(f"{data[at]} is neither yes nor no")
        if data[at]:
            topic_id, at = read_topic_id(data, at + 1)
        else:
            at += 1
        if topic_id is None:
            raise CodecError("a partition of no topic")
        partition, at = read_number(data, at, U31)
        id_count, at = read_number(data, at, len(data))
        producer_id = 0
        producer_ids = []
        for _ in range(id_count):
            distance, at = read_zigzag(data, at)
            producer_id += distance
            if not 0 <= producer_id <= U63:
                raise CodecError(f"producer {producer_id}")
            producer_ids.append(producer_id)
        producers.append(PartitionProducers(topic_id, partition, tuple(producer_ids)))
    return ExpireProducers(expiration_ms, tuple(producers)), at


def _put_feature(out: bytearray, command: SetFeatureLevel) -> None:
    put_string(out, command.feature)
    put_signed(out, command.level)


def _read_feature(data: bytes, at: int) -> tuple[SetFeatureLevel, int]:
    feature, at = read_string(data, at)
    level, at = read_signed(data, at)
    return SetFeatureLevel(feature, level), at


TRANSACTION_ENCODERS: Final[dict[type[Command], tuple[int, Callable[[bytearray, Any], None]]]] = {
    InitProducer: (20, _put_init),
    AddToTransaction: (21, _put_add),
    CommitTransactionOffsets: (22, _put_commit),
    EndTransaction: (23, _put_end),
    GiveUpTransaction: (24, _put_give_up),
    ExpireTransactionalIds: (25, _put_expire_ids),
    ExpireProducers: (26, _put_expire_producers),
    SetFeatureLevel: (27, _put_feature),
}

TRANSACTION_DECODERS: Final[dict[int, Callable[[bytes, int], tuple[Command, int]]]] = {
    20: _read_init,
    21: _read_add,
    22: _read_commit,
    23: _read_end,
    24: _read_give_up,
    25: _read_expire_ids,
    26: _read_expire_producers,
    27: _read_feature,
}
