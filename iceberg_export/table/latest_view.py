"""The query "newest record of each key" over a table of mode append. Pure.

It is what `upsert` would have kept: in a partition the record with the greater offset is newer,
among partitions the one with the greater timestamp; keys whose newest record has no value are
left out, records without a key too. A table whose values are columns does not tell a record
without a value from one whose fields are all null: both count as deletions.
"""

from collections.abc import Sequence

from iceberg_export import names

SUFFIX = "_latest"
QUOTES = {"spark": "`", "trino": '"', "duckdb": '"'}
"""By dialect: what encloses a name that might be a word of the language."""
_OURS = "kafka_"
_VALUE_SCHEMA_ID = "kafka_value_schema_id"


def latest_query(table: str, columns: Sequence[str], dialect: str) -> str:
    """The query over `table` (as that engine names it) with those columns."""
    mark = QUOTES[dialect]

    def quoted(name: str) -> str:
        return mark + name.replace(mark, mark * 2) + mark

    key, partition = quoted(names.KEY), quoted(names.PARTITION)
    values = [one for one in columns if not one.startswith(_OURS) or one == _VALUE_SCHEMA_ID]
    some_value = " OR ".join(f"{quoted(one)} IS NOT NULL" for one in values)
    shown = ", ".join(quoted(one) for one in columns)
    return f"""\
SELECT {shown} FROM (
  SELECT one.*, row_number() OVER (
    PARTITION BY {key} ORDER BY {quoted(names.TIMESTAMP)} DESC NULLS LAST, {partition} DESC
  ) AS frazil_newest FROM (
    SELECT every.*, row_number() OVER (
      PARTITION BY {key}, {partition} ORDER BY {quoted(names.OFFSET)} DESC
    ) AS frazil_last FROM {table} every WHERE {key} IS NOT NULL
  ) one WHERE frazil_last = 1
) found WHERE frazil_newest = 1 AND ({some_value})"""  # noqa: S608 - it is what we make; names are quoted.


def create_view_statement(table: str, columns: Sequence[str], dialect: str) -> str:
    """The statement that makes the view `<table>_latest` of that query."""
    return f"CREATE OR REPLACE VIEW {table}{SUFFIX} AS\n{latest_query(table, columns, dialect)}"
