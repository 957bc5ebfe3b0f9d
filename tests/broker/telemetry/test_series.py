"""What clients pushed, as Prometheus is told it."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.calls.shares import Owner
from broker.telemetry.instances import Instance
from broker.telemetry.otlp import Buckets, Kind, Point, Reading
from broker.telemetry.series import SLICE_POINTS, Series, labels_of, name_of
from broker.telemetry.subscriptions import Asked
from protocol.slices import advance, finish

ASKED = Asked(("*",), 1000)


def instance_of(number: int = 1, *, owner: str = "10.0.0.1", client_id: str = "c") -> Instance:
    labels = labels_of(f"i{number}", client_id, "a-client")
    return Instance(bytes([number]) * 16, Owner(owner), labels, ASKED, 1, 0)


def gauge(name="a.b", value=1.0, **labels):
    return Point(name, Kind.GAUGE, False, tuple(labels.items()), value)


def counter(name="a.total", value=1.0, *, is_delta=True):
    return Point(name, Kind.COUNTER, is_delta, (), value)


def histogram(bounds=(1.0,), counts=(1, 2), value=3.0, *, is_delta=True, name="h"):
    return Point(name, Kind.HISTOGRAM, is_delta, (), value, Buckets(bounds, counts))


class Told:
    """One agent's series."""

    def __init__(self, bytes_max=1 << 20):
        self.series = Series(bytes_max=bytes_max)
        self.left_out = {}

    def take(self, instance, *points):
        reading = Reading(left_out=self.left_out)
        finish(self.series.take(instance, points, reading))
        return self

    def samples(self):
        """As Prometheus' own parser reads the page."""
        text = b"".join(self.series.text()).decode()
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, *sorted(sample.labels.items()))
                assert key not in found
                found[key] = sample.value
        return found

    def values(self):
        return {key[0]: value for key, value in self.samples().items()}


@pytest.mark.parametrize(
    ("metric", "kind", "name"),
    [
        ("org.apache.kafka.producer.record.queue.time.avg", Kind.GAUGE, "producer_record_queue_time_avg"),
        ("org.apache.kafka.producer.connection.creation.total", Kind.COUNTER, "producer_connection_creation_total"),
        ("my.count", Kind.COUNTER, "my_count_total"),
        ("my-own/metric", Kind.GAUGE, "my_own_metric"),
    ],
)  # fmt: skip
def test_names_are_otlps_with_a_beginning_of_their_own(metric, kind, name):
    assert name_of(metric, kind) == f"kafka_client_{name}"


def test_a_series_has_the_labels_of_its_client_and_the_attributes_of_its_point():
    told = Told().take(instance_of(), gauge(node_id="n 1", topic="t"))
    labels = {"client_instance_id": "i1", "client_id": "c", "client_software_name": "a-client"}
    labels |= {"node_id": "n 1", "topic": "t"}
    assert told.samples() == {("kafka_client_a_b", *sorted(labels.items())): 1.0}


def test_texts_of_strangers_cannot_break_the_page():
    hostile = 'a"} 1\nfrazil_ready 0 # \\'
    instance = instance_of(client_id=hostile)
    told = Told().take(instance, gauge(**{"x": hostile, 'y"} 1\n': "1", "": "2", "1z": "3"}))
    ((key, value),) = told.samples().items()
    labels = dict(key[1:])
    assert (key[0], value) == ("kafka_client_a_b", 1.0)
    assert (labels["client_id"], labels["x"]) == (hostile, hostile)
    assert set(labels) == {"client_instance_id", "client_id", "client_software_name", "x", "y___1_"}


def test_attributes_cannot_stand_in_for_the_client():
    told = Told().take(instance_of(), gauge(client_id="another", le="1", __name__="frazil_ready"))
    ((key, _),) = told.samples().items()
    assert dict(key[1:])["client_id"] == "c"
    assert key[0] == "kafka_client_a_b"
    assert "le" not in dict(key[1:])


def test_counters_of_deltas_are_added_up_and_others_are_as_the_client_says():
    told = Told()
    for value in (2.0, 3.0):
        told.take(instance_of(), counter("d.total", value), counter("c", value, is_delta=False))
        told.take(instance_of(), gauge("g", value))
    assert told.values() == {
        "kafka_client_d_total": 5.0,
        "kafka_client_c_total": 3.0,
        "kafka_client_g": 3.0,
    }


def test_a_histogram_is_told_with_growing_buckets():
    told = Told().take(instance_of(), histogram()).take(instance_of(), histogram())
    by_bound = {dict(key[1:]).get("le"): value for key, value in told.samples().items()}
    assert (by_bound["1.0"], by_bound["+Inf"]) == (2.0, 6.0)
    assert told.values()["kafka_client_h_sum"] == 6.0
    assert told.values()["kafka_client_h_count"] == 6.0
    told.take(instance_of(), histogram(is_delta=False))
    assert told.values()["kafka_client_h_count"] == 3.0
    told.take(instance_of(), histogram(bounds=(2.0,)))
    assert told.left_out == {"conflict": 1}
    assert told.values()["kafka_client_h_count"] == 3.0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (gauge("a.b"), gauge("a_b")),
        (gauge("a.total"), counter("a")),
        (gauge("h.count"), histogram()),
        (histogram(), gauge("h.sum")),
        (histogram(name="a.b"), gauge("a.b")),
    ],
)
def test_two_metrics_of_one_name_are_not_told_as_one(first, second):
    told = Told().take(instance_of(1), first).take(instance_of(2), second)
    assert told.left_out == {"conflict": 1}
    assert len({key[0] for key in told.samples()}) in (1, 4 - 1)
    assert told.series.count == 1


def test_the_series_of_a_client_go_with_it():
    told = (
        Told().take(instance_of(1), gauge("both"), gauge("one")).take(instance_of(2), gauge("both"))
    )
    told.series.forget(instance_of(1))
    assert set(told.values()) == {"kafka_client_both"}
    told.series.forget(instance_of(2))
    assert (told.samples(), told.series.count, told.series.bytes_used) == ({}, 0, 0)
    # A name that nobody has any more may be another metric's.
    told.take(instance_of(3), counter("a"))
    told.series.forget(instance_of(3))
    assert told.take(instance_of(4), gauge("a.total")).left_out == {}


def test_a_client_that_goes_while_its_points_are_taken_leaves_nothing():
    series, instance = Series(bytes_max=1 << 20), instance_of()
    work = series.take(instance, [gauge(f"g{n}") for n in range(2 * SLICE_POINTS)], Reading())
    assert advance(work) is None
    assert series.count == SLICE_POINTS
    series.forget(instance)
    finish(work)
    assert (series.count, series.bytes_used) == (0, 0)


@pytest.mark.promise("P15")
def test_one_client_fills_nine_tenths_and_another_still_gets_some():
    told = Told(bytes_max=100_000)
    told.take(instance_of(1), *[gauge(f"g{number}") for number in range(1000)])
    assert 85_000 < told.series.bytes_used < 95_000
    assert told.left_out["room"] > 800
    before = told.series.count
    told.take(instance_of(2, owner="10.0.0.2"), gauge("g1"), gauge("new"))
    assert told.series.count == before + 2
    # What is there goes on.
    told.take(instance_of(1), gauge("g1", 7.0))
    assert 7.0 in told.samples().values()


@pytest.mark.promise("P15")
def test_the_page_is_no_longer_than_the_bound_of_its_series():
    told = Told(bytes_max=200_000)
    bounds = tuple(float(each) for each in range(60))
    labels = tuple((f"label{number}", "x" * 128) for number in range(8))
    for number in range(1000):
        point = Point(f"h{number}", Kind.HISTOGRAM, True, labels, 1.0, Buckets(bounds, (1,) * 61))
        told.take(instance_of(), point)
    assert told.left_out["room"] > 900
    page = list(told.series.text())
    assert sum(map(len, page)) < 200_000 * 1.1
    assert len(page) > 2, "it is told in slices"
