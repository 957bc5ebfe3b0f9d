"""Single numbers out of the metrics, for pages: all rows of `broker.admin.metrics` cost milliseconds."""

from collections.abc import Collection, Mapping

from broker.admin.metrics import LATENCY, TABLE, Sources, api_label, cumulated, names_of
from broker.reports.cost_report import Metrics


def numbers_of(sources: Sources, names: Collection[str]) -> Metrics:
    """What these rows say now, by name without Prometheus' `_total`; and the counts of LATENCY if it is named."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for row in TABLE:
        if row.name not in names:
            continue
        value, labels = row.read(sources), names_of(row.labels)
        for values, number in value.items() if isinstance(value, Mapping) else (((), value),):
            found[row.name, frozenset(zip(labels, names_of(values), strict=True))] = number
    if LATENCY in names:
        for api_key, counts in sources.node.stats.latencies.items():
            for bound, total in cumulated(counts):
                said = frozenset({("api", api_label(api_key)), ("le", bound)})
                found[f"{LATENCY}_bucket", said] = total
    return found
