"""The action on transactions: abort the open one of an id, as `frazil txn abort` does."""

from typing import Final

from broker.console.actions.asking import Operator
from broker.console.actions.parameters import Parameters, transaction_page
from broker.console.confirming import Confirmation, Done, RefusalError, check, counted, refusal_of
from broker.transactions.views import OFFSETS_TOPIC, STATE_NAMES, offsets_partition
from coordinator.tables.transactions import TransactionRow
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError

LIST: Final = "/console/transactions"


async def plan_abort(by: Operator, said: Parameters) -> Confirmation:
    row = _open(by, said)
    parts = [counted(len(row.partitions), "partition")] if row.partitions else []
    if row.group_ids:
        parts.append(f"the offsets of {counted(len(row.group_ids), 'group')}")
    return Confirmation(
        title="Abort a transaction",
        sentence=(
            f"The open transaction of “{row.transactional_id}” (producer {row.txn_metadata.producer_id}, epoch"
            f" {row.txn_metadata.epoch}) is aborted, in {' and '.join(parts)}. Its producer is told so when it sends"
            " its next request."
        ),
        warning="What it has written will never be read by who reads committed records.",
        typed=row.transactional_id,
        button="Abort it",
        path=transaction_page(row.transactional_id, "/abort"),
        back=LIST,
        hidden=(("of", _mark(row)),),
    )


async def abort(by: Operator, said: Parameters) -> Done:
    row = _open(by, said)
    if said.text("of") != _mark(row):
        reason = f"“{row.transactional_id}” has begun another transaction than this page showed"
        raise refusal_of(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, reason))
    # One entry ends it everywhere, so one place stands for all.
    topic, partition = _place(by, row)
    marker = messages.WritableTxnMarker(
        producer_id=row.txn_metadata.producer_id,
        producer_epoch=row.txn_metadata.epoch,
        transaction_result=False,
        topics=[messages.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
    )
    request = messages.WriteTxnMarkersRequest(markers=[marker])
    answer = await by.ask(apis.WRITE_TXN_MARKERS, request)
    check(answer.markers[0].topics[0].partitions[0].error_code)
    return Done(LIST, "transaction-aborted", row.transactional_id)


def _open(by: Operator, said: Parameters) -> TransactionRow:
    """Raises RefusalError where no transaction is open that could be aborted."""
    transactional_id = said.text("id")
    row = by.machine.transactions.get(transactional_id)
    if row is None:
        raise refusal_of(
            KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"There is no “{transactional_id}”"),
            advice="Look at the list.",
        )
    if not row.is_ongoing:
        state = STATE_NAMES[row.txn_metadata.state]
        reason = f"No transaction of “{transactional_id}” is open: it is {state}"
        raise refusal_of(
            KafkaError(ErrorCode.INVALID_TXN_STATE, reason), advice="There is nothing to abort."
        )
    if not row.partitions and not row.group_ids:
        raise RefusalError(
            f"Nothing takes part in the transaction of “{transactional_id}” yet: it ends by its timeout, or when its"
            " producer is started again."
        )
    return row


def _mark(row: TransactionRow) -> str:
    """Which transaction of the id it is."""
    return f"{row.txn_metadata.producer_id}.{row.txn_metadata.instance}"


def _place(by: Operator, row: TransactionRow) -> tuple[str, int]:
    """A topic and partition that take part, or where Kafka has the offsets of a group. Raises RefusalError."""
    for topic_id, partition in row.partitions:
        topic = by.machine.topics.by_id(topic_id)
        if topic is not None:
            return topic.name, partition
    for group_id in row.group_ids:
        return OFFSETS_TOPIC, offsets_partition(group_id)
    raise RefusalError("None of its topics is there any more: it ends by its timeout.")
