"""The metrics of several agents as one page, which Prometheus' own parser reads."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from broker.telemetry.series import labels_of
from broker.workers.joined_metrics import JoinedMetrics

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page_of(*, requests: int, connections: int, seconds: tuple[float, ...] = ()) -> str:
    """As a worker has counted."""
    registry = CollectorRegistry()
    counter = Counter("frazil_requests", "Requests.", ["api"], registry=registry)
    counter.labels(api='a "b" \\ c').inc(requests)
    Gauge("frazil_connections", "Connections.", registry=registry).set(connections)
    histogram = Histogram("frazil_request_seconds", "", buckets=(0.1, 1.0), registry=registry)
    for each in seconds:
        histogram.observe(each)
    return generate_latest(registry).decode()


def samples(joined: JoinedMetrics) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(joined.page()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def requests(joined: JoinedMetrics) -> float:
    return samples(joined)["frazil_requests_total", (("api", 'a "b" \\ c'),)]


def two() -> JoinedMetrics:
    joined = JoinedMetrics(["w1", "w2"])
    for name in ("w1", "w2"):
        joined.started(name)
    joined.take("w1", page_of(requests=5, connections=1, seconds=(0.05, 0.5)))
    joined.take("w2", page_of(requests=7, connections=2, seconds=(0.05,)))
    return joined


def test_counters_and_histograms_are_summed_and_gauges_stand_side_by_side() -> None:
    found = samples(two())
    assert found["frazil_requests_total", (("api", 'a "b" \\ c'),)] == 12
    assert found["frazil_request_seconds_bucket", (("le", "0.1"),)] == 2
    assert found["frazil_request_seconds_bucket", (("le", "+Inf"),)] == 3
    assert found["frazil_request_seconds_count", ()] == 3
    assert found["frazil_connections", (("worker", "w1"),)] == 1
    assert found["frazil_connections", (("worker", "w2"),)] == 2
    assert ("frazil_connections", ()) not in found


def test_what_a_worker_counted_before_it_died_stays_in_the_sum() -> None:
    joined = two()
    joined.ended("w2")
    assert requests(joined) == 12
    joined.started("w2")
    joined.take("w2", page_of(requests=3, connections=1))
    assert requests(joined) == 15
    found = samples(joined)
    assert found["frazil_worker_starts_total", (("worker", "w2"),)] == 2
    assert found["frazil_request_seconds_count", ()] == 3


def test_a_worker_that_does_not_answer_is_down_and_lowers_no_sum() -> None:
    joined = two()
    joined.take("w2", None)
    found = samples(joined)
    assert requests(joined) == 12
    assert ("frazil_connections", (("worker", "w2"),)) not in found
    assert found["frazil_worker_up", (("worker", "w1"),)] == 1
    assert found["frazil_worker_up", (("worker", "w2"),)] == 0
    joined.take("w2", page_of(requests=8, connections=4))
    assert requests(joined) == 13
    assert samples(joined)["frazil_worker_up", (("worker", "w2"),)] == 1


def test_a_worker_that_is_starting_has_nothing_to_tell() -> None:
    joined = two()
    joined.ended("w2")
    joined.take("w2", "")
    assert requests(joined) == 12
    assert samples(joined)["frazil_worker_up", (("worker", "w2"),)] == 0


CLIENTS = """\
# HELP org_apache_kafka_sent_total Sent.
# TYPE org_apache_kafka_sent_total counter
org_apache_kafka_sent_total{client="c",worker="mine"} 100.0
"""


def test_what_clients_pushed_is_not_summed_and_a_label_of_theirs_does_not_break_the_page() -> None:
    joined = two()
    for name in ("w1", "w2"):
        joined.take(name, page_of(requests=1, connections=1) + CLIENTS)
    found = samples(joined)
    for name in ("w1", "w2"):
        labels = (("client", "c"), ("exported_worker", "mine"), ("worker", name))
        assert found["org_apache_kafka_sent_total", labels] == 100


@pytest.mark.parametrize("broken", ["\r", "\x0b", "\x1e", "\x85", "\u2028"])
def test_a_name_of_a_client_with_something_like_a_line_break_does_not_break_the_page(
    broken: str,
) -> None:
    joined = two()
    labels = labels_of("an-id", f"a{broken}b", "librdkafka").decode()
    pushed = (
        f"# HELP kafka_client_x x\n# TYPE kafka_client_x gauge\nkafka_client_x{{{labels}}} 5.0\n"
    )
    joined.take("w1", page_of(requests=1, connections=1) + pushed)
    told = [line for line in joined.page().split("\n") if line.startswith("kafka_client_x")]
    assert told == [f'kafka_client_x{{worker="w1",{labels}}} 5.0']
    assert all(line.startswith(("# ", "frazil_", *told)) for line in joined.page().split("\n")[:-1])


def test_numbers_that_are_none_are_written_as_prometheus_has_them() -> None:
    joined = JoinedMetrics(["w1"])
    joined.take("w1", '# TYPE frazil_x gauge\nfrazil_x{a="1"} +Inf\nfrazil_x{a="2"} NaN\nbroken\n')
    text = joined.page()
    assert 'frazil_x{worker="w1",a="1"} +Inf' in text
    assert 'frazil_x{worker="w1",a="2"} NaN' in text
    assert "broken" not in text
