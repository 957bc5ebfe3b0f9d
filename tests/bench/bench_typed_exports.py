"""What a whole export costs a record: `python -m tests.bench.bench_typed_exports [--records 100000] [--write]`.

From chunks on disk to committed data files, in one process without Spark: rows as they are, and the same in other
clothes, measured in turn. CPU seconds of the process, best of three, without the first export of a table, which
draws types and compiles.
"""

import argparse
import gc
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from iceberg_export.runs.export import export_topic
from iceberg_export.runs.table_choice import each_table
from iceberg_export.typed.types import Schema
from protocol.records import Record
from tests.bench.bench_typed import TS, avro, avro_events, json_events, json_values
from tests.bench.report import machine, write_section
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.place import place
from tests.iceberg_export.kit.registry import FakeRegistry

RECORDS_OF_A_CHUNK = 10_000
FIRST_RECORDS = 200
"""Of the export that is not measured."""
ROUNDS = 3
INTRODUCTION = """`python -m tests.bench.bench_typed_exports --write`: {records} records of the six fields above, from chunks to
committed data files, in one process. CPU a record, best of three; rows are beside those that they are the same as, measured in turn.

{machine}

| records | µs a record | times the CPU of |
|---|---|---|
{rows}
"""


class Case(NamedTuple):
    name: str
    values: Sequence[bytes]
    configs: Mapping[str, str]
    schema: Schema | None = None
    """Of the registry, with id 1."""


def export_us(case: Case) -> float:
    """CPU microseconds a record."""
    registry = FakeRegistry()
    if case.schema is not None:
        assert registry.register("orders-value", case.schema.text, case.schema.kind) == 1
    with served(registry) as url, place(1) as here:
        here.sets = (f"schema.registry.url={url}",)
        here.configure(**dict(case.configs))

        def commit(values: Sequence[bytes]) -> None:
            for at in range(0, len(values), RECORDS_OF_A_CHUNK):
                records = [
                    Record(timestamp=TS + at, value=one)
                    for one in values[at : at + RECORDS_OF_A_CHUNK]
                ]
                here.world.commit("orders", {0: [records]})

        commit(case.values[:FIRST_RECORDS])
        here.export()
        commit(case.values[FIRST_RECORDS:])
        job = here.job()
        (own, *_others) = each_table(here.topic(job))
        gc.collect()
        began = time.process_time()
        report = export_topic(job, own)
        took_s = time.process_time() - began
        assert report.dead == 0
        return took_s / (len(case.values) - FIRST_RECORDS) * 1e6


def beside(plain: Case, *others: Case) -> list[str]:
    """Lines of the table, the plain rows first."""
    times: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for case in (plain, *others):
            times.setdefault(case.name, []).append(export_us(case))
    best = {name: min(some) for name, some in times.items()}
    lines = [f"| {plain.name} | {best[plain.name]:.2f} | |"]
    for case in others:
        ratio = best[case.name] / best[plain.name]
        lines.append(f"| {case.name} | {best[case.name]:.2f} | {ratio:.2f} {plain.name} |")
    print(*lines, sep="\n", flush=True)
    return lines


def measure(count: int) -> list[str]:
    by_schema = {"value_mode": "json"}
    inferred = {**by_schema, "value_schema": "infer"}
    events = {"envelope": "debezium"}
    json_schema, values = json_values(count, tags=False)
    texts = [one[5:] for one in values]
    drifting = [
        text.replace(b'"amount": ', b'"amount": "about ').replace(b', "at"', b'", "at"')
        if number % 100 == 99
        else text
        for number, text in enumerate(texts)
    ]
    routed = {**by_schema, "route_by": "ok", "route_tables": "true:others"}
    avro_schema, avro_plain = avro(count, tags=False)
    event_schema, avro_changes = avro_events(count)
    json_event_schema, json_changes = json_events(count)
    return [
        *beside(
            Case("JSON with a schema", values, by_schema, json_schema),
            Case("JSON whose types were drawn", texts, inferred),
            Case("the same, drifting", drifting, inferred),
            Case("JSON of two tables, half of it this one's", values, routed, json_schema),
            Case("Debezium's events in JSON", json_changes, {**by_schema, **events}, json_event_schema),
        ),
        *beside(
            Case("Avro", avro_plain, {"value_mode": "avro"}, avro_schema),
            Case("Debezium's events in Avro", avro_changes, {"value_mode": "avro", **events}, event_schema),
            Case("Avro, two texts hashed", avro_plain,
                 {"value_mode": "avro", "columns_mask": "hash(name),hash(country)"}, avro_schema),
        ),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_typed_exports")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help="write the section of BENCHMARKS.md")
    options = parser.parse_args()
    rows = measure(options.records)
    if options.write:
        text = INTRODUCTION.format(
            records=f"{options.records:,}", machine=machine(), rows="\n".join(rows)
        )
        write_section("Typed exports", text)


if __name__ == "__main__":
    main()
