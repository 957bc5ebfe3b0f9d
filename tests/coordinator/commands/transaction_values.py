"""Commands about transactions for the tests of codecs: one of each kind, and any there may be."""

from hypothesis import strategies as st

from coordinator.commands.group_commands import EPOCH_NONE, CommittedOffset
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
    TransactionCommand,
)
from protocol.types import TopicId, position
from tests.coordinator.commands.group_values import OTHER, TOPIC, any_offsets, any_places
from txn.transactions import OF_EPOCH

TRANSACTION_COMMANDS: tuple[TransactionCommand, ...] = (
    InitProducer("orders", 60_000, -1, -1),
    InitProducer("orders", 900_000, 2**62, 32_766),
    AddToTransaction(
        "orders", 1000, 3, 7, 42, ((TOPIC, 0), (TOPIC, 1), (OTHER, 9)), ("billing", "audit")
    ),
    CommitTransactionOffsets(
        "billing",
        "m-1",
        8,
        1000,
        3,
        7,
        (CommittedOffset(TOPIC, 0, 1_000_000, 0, ""), CommittedOffset(OTHER, 3, 5, -1, "host-1")),
    ),
    CommitTransactionOffsets("billing", "", EPOCH_NONE, 1000, 3, OF_EPOCH, ()),
    EndTransaction("orders", 1000, 3, commit=True, proof=None),
    EndTransaction("orders", 1000, 3, commit=False, proof=None),
    EndTransaction(
        "orders",
        1000,
        3,
        commit=True,
        proof=ClientProof(7, 42, position(1, 900), challenged=False),
    ),
    EndTransaction(
        "orders",
        1000,
        3,
        commit=False,
        proof=ClientProof(7, 42, position(1, 900), challenged=True),
    ),
    GiveUpTransaction("orders", 1000, 3, 7, timed_out=True),
    GiveUpTransaction("orders", 1000, 3, 7, timed_out=False),
    ExpireTransactionalIds(604_800_000, ("orders", "payments")),
    ExpireProducers(
        86_400_000,
        (
            PartitionProducers(TOPIC, 0, (1000, 1001, 7)),
            PartitionProducers(TOPIC, 5, ()),
            PartitionProducers(OTHER, 0, (2**63 - 1,)),
        ),
    ),
    SetFeatureLevel("transaction.version", 2),
)

_U63 = st.integers(0, 2**63 - 1)
_I63 = st.integers(-(2**63), 2**63 - 1)
_I32 = st.integers(-(2**31), 2**31 - 1)
_strings = st.text(max_size=20)
_texts = st.lists(_strings, max_size=3).map(tuple)
_topic_ids = st.sampled_from([TOPIC, OTHER, TopicId(bytes(16))])
_producer_ids = st.one_of(st.integers(-1, 3), _I63)
_epochs = st.one_of(st.integers(-1, 2), st.integers(-(2**15), 2**15 - 1))
_instances = st.one_of(st.integers(0, 3), _U63)

any_transaction_command: st.SearchStrategy[TransactionCommand] = st.one_of(
    st.builds(InitProducer, _strings, _I63, _producer_ids, _epochs),
    st.builds(
        AddToTransaction,
        transactional_id=_strings,
        producer_id=_producer_ids,
        producer_epoch=_epochs,
        instance=_instances,
        connection=_U63,
        partitions=any_places,
        group_ids=_texts,
    ),
    st.builds(
        CommitTransactionOffsets,
        group_id=_strings,
        member_id=_strings,
        epoch=_I32,
        producer_id=_producer_ids,
        producer_epoch=_epochs,
        instance=st.one_of(st.just(OF_EPOCH), _I63),
        offsets=any_offsets,
    ),
    st.builds(
        EndTransaction,
        transactional_id=_strings,
        producer_id=_producer_ids,
        producer_epoch=_epochs,
        commit=st.booleans(),
        proof=st.none() | st.builds(ClientProof, _instances, _U63, _U63, st.booleans()),
    ),
    st.builds(
        GiveUpTransaction, _strings, _producer_ids, _epochs, _instances, timed_out=st.booleans()
    ),
    st.builds(ExpireTransactionalIds, _U63, _texts),
    st.builds(
        ExpireProducers,
        _U63,
        st.lists(
            st.builds(
                PartitionProducers,
                _topic_ids,
                st.integers(0, 2**31 - 1),
                st.lists(st.one_of(st.integers(0, 5), _U63), max_size=4).map(tuple),
            ),
            max_size=4,
        ).map(tuple),
    ),
    st.builds(SetFeatureLevel, _strings, _I63),
)
