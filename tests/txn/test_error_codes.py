"""What each API and version is told, whole (docs/design/kafka-semantics.md §5.2 to §5.5).

Every row here is one canonical code; what is not in a table is told as it is.
"""

import pytest

from protocol.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    APIS,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from protocol.errors import ErrorCode
from txn import error_codes

TABLES = {
    ("AddPartitionsToTxn", ADD_PARTITIONS_TO_TXN, error_codes.for_add): """
        90: 47 47 90 90
        120: 48 48 48 48
    """,
    ("AddOffsetsToTxn", ADD_OFFSETS_TO_TXN, error_codes.for_add): """
        90: 47 47 90 90 90
        120: 48 48 48 48 120
    """,
    ("InitProducerId", INIT_PRODUCER_ID, error_codes.for_init): """
        90: 47 47 47 47 90 90
        120: 48 48 48 48 48 120
    """,
    ("EndTxn", END_TXN, error_codes.for_end): """
        90: 47 47 90 90 90 90
        120: 48 48 48 48 120 120
    """,
    ("Produce", PRODUCE, error_codes.for_produce): """
        13: 19 19 19 19 19 19 19 19 19 19 19 19 19 19
        14: 19 19 19 19 19 19 19 19 19 19 19 19 19 19
        15: 19 19 19 19 19 19 19 19 19 19 19 19 19 19
        16: 19 19 19 19 19 19 19 19 19 19 19 19 19 19
        51: 19 19 19 19 19 19 19 19 19 19 19 19 51 51
        90: 47 47 47 47 47 47 47 47 47 47 47 47 47 47
        120: 48 48 48 48 48 48 48 48 48 48 48 120 120 120
    """,
    ("TxnOffsetCommit", TXN_OFFSET_COMMIT, error_codes.for_txn_offset_commit): """
        6: 16 16 16 16 16 16
        10: -1 -1 -1 -1 -1 -1
        13: 15 15 14 14 14 14
        14: 15 15 14 14 14 14
        18: -1 -1 -1 -1 -1 -1
        19: 15 15 15 15 15 15
        51: 15 15 14 14 14 14
        56: 16 16 16 16 16 16
        69: 22 22 22 22 22 22
        90: 47 47 47 47 47 47
        100: 3 3 3 3 3 3
        113: 22 22 22 22 22 22
        120: 48 48 48 48 120 120
    """,
}


@pytest.mark.parametrize(("api", "table"), TABLES.items(), ids=[api[0] for api in TABLES])
def test_every_code_is_told_as_the_version_knows_it(api, table):
    _, key, told = api
    changed = {}
    for line in table.split("\n"):
        if line.strip():
            code, _, by_version = line.partition(":")
            changed[ErrorCode(int(code))] = [int(told) for told in by_version.split()]
    versions = range(APIS[key].max_version + 1)
    for code in ErrorCode:
        now = [int(told(code, version)) for version in versions]
        assert now == changed.get(code, [code] * len(versions)), code.name


RETRIED_BY_PRODUCERS = {19, 51}
RETRIED_BY_OFFSET_COMMITS = {14, 15, 16, 3, 7}


def test_what_may_be_sent_again_is_told_with_codes_that_clients_send_again():
    """`transactions.check` and `.begin`, and what shells say when they cannot ask the log."""
    for code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        for version in range(3, 14):
            assert error_codes.for_produce(code, version) in RETRIED_BY_PRODUCERS
        for version in range(6):
            told = error_codes.for_txn_offset_commit(code, version)
            assert told in RETRIED_BY_OFFSET_COMMITS


def test_what_may_still_happen_is_never_told_as_an_error_that_says_it_did_not():
    for told in {api[2] for api in TABLES}:
        for version in range(14):
            assert told(ErrorCode.REQUEST_TIMED_OUT, version) is ErrorCode.REQUEST_TIMED_OUT


def test_an_endtxn_is_never_sent_to_look_for_another_coordinator():
    """librdkafka and sarama would never end (docs/design/kafka-semantics.md §6.2)."""
    for told in (error_codes.for_end, error_codes.for_add, error_codes.for_init):
        for code in ErrorCode:
            for version in range(6):
                assert told(code, version) == code or told(code, version) not in (15, 16)
