"""Names of the table's columns, and what its timestamp column can hold. Pure: `rows` and
`checksum` need no more of the table than this."""

PARTITION = "kafka_partition"
OFFSET = "kafka_offset"
TIMESTAMP = "kafka_timestamp"
TIMESTAMP_TYPE = "kafka_timestamp_type"
KEY = "kafka_key"
HEADERS = "kafka_headers"
TIMESTAMP_RAW = "kafka_timestamp_raw"
VALUE = "value"
CHANGE_OP = "kafka_cdc_op"
CHANGE_TIME = "kafka_cdc_ts"
"""Of tables of change events: what happened to the row, and when."""
CHANGE_TRANSACTION = "kafka_cdc_transaction"
CHANGE_ORDER = "kafka_cdc_transaction_order"
"""Of those with transactions: the database's id of it, and the how-manieth of its events this is."""
DELETE = "d"
"""In CHANGE_OP."""

TIMESTAMP_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999, the end of every engine's calendar."""
TIMESTAMP_MS_MIN = 946_684_800_000
"""The year 2000. What is older, or a day ahead, is a producer's mistake."""
TIMESTAMP_AHEAD_MS_MAX = 86_400_000
