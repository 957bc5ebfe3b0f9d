"""The query "newest record of each key" over a table of mode append. Pure.

It is what `upsert` would have kept: in a partition the record with the greater offset is newer,
among partitions the one with the greater timestamp; keys whose newest record has no value, or is the event
of a delete, are left out, records without a key too. A table whose values are columns does not tell
a record without a value from one whose fields are all null: both count as deletions.
"""

from collections.abc import Sequence

from iceberg_export import names

SUFFIX = "_latest"
QUOTES = {"spark": "`", "trino": '"', "duckdb": '"'}
"""By dialect: what encloses a name."""
_OURS = "kafka_"
_VALUE_SCHEMA_ID = "kafka_value_schema_id"


def quoted(name: str, dialect: str) -> str:
    """A name, whatever is in it, as one identifier of that dialect."""
    mark = QUOTES[dialect]
    return mark + name.replace(mark, mark * 2) + mark


def latest_query(table: Sequence[str], columns: Sequence[str], dialect: str) -> str:
    """The query over `table` (the parts of its name in that engine) with those columns."""

    def column(name: str) -> str:
        return quoted(name, dialect)

    named = ".".join(quoted(part, dialect) for part in table)
    last, newest = _unused("frazil_last", columns), _unused("frazil_newest", columns)
    key, partition = column(names.KEY), column(names.PARTITION)
    values = [one for one in columns if not one.startswith(_OURS) or one == _VALUE_SCHEMA_ID]
    some_value = " OR ".join(f"{column(one)} IS NOT NULL" for one in values)
    deleted = (
        f" AND coalesce({column(names.CHANGE_OP)}, '') <> '{names.DELETE}'"
        if names.CHANGE_OP in columns
        else ""
    )
    shown = ", ".join(column(one) for one in columns)
    return f"""\
SELECT {shown} FROM (
  SELECT one.*, row_number() OVER (
    PARTITION BY {key} ORDER BY {column(names.TIMESTAMP)} DESC NULLS LAST, {partition} DESC
  ) AS {newest} FROM (
    SELECT every.*, row_number() OVER (
      PARTITION BY {key}, {partition} ORDER BY {column(names.OFFSET)} DESC
    ) AS {last} FROM {named} every WHERE {key} IS NOT NULL
  ) one WHERE {last} = 1
) found WHERE {newest} = 1 AND ({some_value}){deleted}"""  # noqa: S608 - every name in it is quoted.


def _unused(name: str, columns: Sequence[str]) -> str:
    """A name that no column has, whatever its case: a record may have a field of any name."""
    taken = {one.lower() for one in columns}
    while name in taken:
        name += "_"
    return name


def create_view_statement(table: Sequence[str], columns: Sequence[str], dialect: str) -> str:
    """The statement that makes the view `<table>_latest` of that query."""
    view = ".".join(quoted(part, dialect) for part in (*table[:-1], table[-1] + SUFFIX))
    return f"CREATE OR REPLACE VIEW {view} AS\n{latest_query(table, columns, dialect)}"
