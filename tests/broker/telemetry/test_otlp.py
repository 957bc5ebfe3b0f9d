"""OTLP as clients push it, made by Protobuf's own library and read by ours."""

import math
import random

import pytest

from broker.telemetry import otlp
from broker.telemetry.otlp import Buckets, Kind, Point
from protocol.compression import Codec, compress
from protocol.errors import ProtocolError
from protocol.slices import advance, finish
from tests.kit.otlp import CUMULATIVE, gauge, histogram, message, number, payload, total


def read(data):
    return finish(otlp.read(data))


def test_gauges_counters_and_histograms_become_points():
    data = payload(
        gauge("a.gauge", 1.5, node_id="n1", partition=-3, is_own=True, part=0.5),
        total("a.counter", number(7, topic="t"), number(2.5)),
        total("so.far", number(9), temporality=CUMULATIVE),
        total("up.and.down", number(-4), is_monotonic=False),
        histogram("times", [1.0, 2.0], [3, 0, 1], 8.5, topic="t"),
    )
    labels = (("node_id", "n1"), ("partition", "-3"), ("is_own", "true"), ("part", "0.5"))
    topic = (("topic", "t"),)
    assert read(data).points == [
        Point("a.gauge", Kind.GAUGE, False, labels, 1.5),
        Point("a.counter", Kind.COUNTER, True, topic, 7.0),
        Point("a.counter", Kind.COUNTER, True, (), 2.5),
        Point("so.far", Kind.COUNTER, False, (), 9.0),
        Point("up.and.down", Kind.GAUGE, True, (), -4.0),
        Point("times", Kind.HISTOGRAM, True, topic, 8.5, Buckets((1.0, 2.0), (3, 0, 1))),
    ]
    assert not read(data).left_out


def test_a_gauge_may_be_any_number_and_what_is_added_up_may_not():
    data = payload(
        gauge("a", math.inf),
        total("b", number(math.nan)),
        total("c", number(-1)),
        total("d", number(math.inf), is_monotonic=False),
        message("Metric", name="e", gauge={"data_points": [message("NumberDataPoint")]}),
    )
    reading = read(data)
    assert [point.name for point in reading.points] == ["a"]
    assert reading.left_out == {"value": 4}


@pytest.mark.parametrize(
    "bounds_and_counts",
    [
        ([1.0], [1]),
        ([2.0, 1.0], [0, 0, 0]),
        ([1.0, 1.0], [0, 0, 0]),
        ([math.nan], [0, 0]),
        ([], []),
    ],
)
def test_a_histogram_whose_buckets_could_not_be_is_left_out(bounds_and_counts):
    reading = read(payload(histogram("a", *bounds_and_counts, 1.0), gauge("b", 1)))
    assert [point.name for point in reading.points] == ["b"]
    assert reading.left_out == {"kind": 1}


def test_a_histogram_of_many_buckets_is_left_out():
    most = [float(each) for each in range(otlp.BUCKETS_MAX)]
    assert read(payload(histogram("a", most, [1] * 65, 1.0))).points
    reading = read(payload(histogram("a", [*most, 99.0, 100.0], [1] * 67, 1.0)))
    assert (reading.points, reading.left_out) == ([], {"kind": 1})


def test_what_prometheus_has_no_kind_for_is_counted():
    untold = message("Untold", data_points=[message("NumberDataPoint")] * 3)
    data = payload(
        message("Metric", name="a", summary=untold),
        message("Metric", name="b", exponential_histogram=untold),
    )
    assert read(data).left_out == {"kind": 6}


@pytest.mark.parametrize("name", ["", "é", "a b", 'a"b', "a\nb", "1a", "a" * 256])
def test_a_name_that_opentelemetry_does_not_allow_is_left_out(name):
    assert read(payload(gauge(name, 1))).left_out == {"name": 1}


def test_a_point_without_a_recorded_value_is_none():
    reading = read(payload(total("a", number(1, flags=1), number(2, flags=2))))
    assert [point.value for point in reading.points] == [2.0]
    assert not reading.left_out


def test_attributes_that_are_no_text_are_left_away_and_long_ones_are_cut():
    labels = {"raw": b"x", "long": "y" * 500} | {f"more{index}": "z" for index in range(20)}
    (point,) = read(payload(gauge("a", 1, **labels))).points
    assert point.attributes[0] == ("long", "y" * otlp.TEXT_CHARACTERS_MAX)
    assert len(point.attributes) == otlp.ATTRIBUTES_MAX


def test_what_is_not_known_is_read_over():
    strange = b"\xf8\x07\x05" + b"\xf9\x07" + bytes(8) + b"\xfd\x07" + bytes(4) + b"\xfa\x07\x01x"
    metric = gauge("a", 1).SerializeToString()
    data = payload() + strange
    assert not read(data).points
    scope = b"\x12" + bytes([len(metric)]) + metric + strange
    resource = b"\x12" + bytes([len(scope)]) + scope
    assert len(read(b"\x0a" + bytes([len(resource)]) + resource + strange).points) == 1
    # A known field of another type, as Protobuf has it: the name as a number.
    assert read(b"\x0a\x06\x12\x04\x12\x02\x08\x07").points == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05\x00",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0b\x0c",
        b"\x0f",
        b"\x00\x00",
        b"\x0a",
        b"\x80",
        b"\x09\x00",
        # A message that ends in the middle of the one in it.
        b"\x0a\x04\x12\x05\x12\x03\x08\x07\x08",
        # A name that is not UTF-8.
        b"\x0a\x07\x12\x05\x12\x03\x0a\x01\xff",
    ],
    ids=bytes.hex,
)
def test_what_is_no_protobuf_is_refused(data):
    with pytest.raises(ProtocolError):
        read(data)


def test_every_beginning_of_a_payload_is_read_or_refused():
    data = payload(
        gauge("a", 1.5, b="c"), total("d", number(1)), histogram("e", [1.0], [1, 1], 2.0)
    )
    whole = 0
    for end in range(len(data)):
        try:
            read(data[:end])
            whole += 1
        except ProtocolError:
            continue
    assert whole == 1, "only nothing at all is whole"


@pytest.mark.promise("P15")
def test_a_payload_of_nothing_but_empty_messages_is_read_no_further_than_the_bound():
    resource = b"\x12\x00" * 500_000
    size = len(resource)
    length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
    work = otlp.read(b"\x0a" + length + resource)
    slices = 0
    while (ended := advance(work)) is None:
        slices += 1
    assert ended.result.left_out == {"size": 1}
    assert slices == otlp.FIELDS_MAX // otlp.SLICE_FIELDS


@pytest.mark.promise("P15")
def test_no_more_points_are_made_than_the_bound_and_the_metrics_before_are_taken():
    many = total("many", *[number(1)] * (otlp.POINTS_MAX + 1))
    reading = read(payload(gauge("a", 1), many, gauge("b", 1)))
    assert [point.name for point in reading.points] == ["a"]
    assert reading.left_out == {"size": 1}


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_payloads_are_opened_in_every_codec_and_within_the_bound(codec):
    data = payload(gauge("a", 1.5), filler="x" * 2000)
    opened = finish(otlp.opened(codec, compress(codec, data), bytes_max=len(data)))
    assert bytes(opened.data) == data
    assert len(opened.reading.points) == 1
    if codec is not Codec.NONE:
        with pytest.raises(ProtocolError):
            finish(otlp.opened(codec, compress(codec, data), bytes_max=len(data) - 1))


def test_a_labelled_payload_has_the_client_among_the_attributes_of_each_resource():
    first = payload(gauge("a", 1.5), group_id="g")
    second = payload(gauge("b", 2.5))
    labelled = otlp.labelled(first + second, {"client_id": "c", "client_instance_id": "i"})
    read_back = message("MetricsData")
    read_back.ParseFromString(labelled)
    seen = [
        {each.key: each.value.string_value for each in resource.resource.attributes}
        for resource in read_back.resource_metrics
    ]
    client = {"client_id": "c", "client_instance_id": "i"}
    assert seen == [{"group_id": "g"} | client, client]
    assert read(labelled).points == read(first + second).points


def test_of_too_many_resources_none_is_labelled():
    with pytest.raises(ProtocolError):
        otlp.labelled(b"\x0a\x00" * (otlp.RESOURCES_MAX + 1), {})


def test_damaged_payloads_raise_nothing_else():
    rng = random.Random(1)
    data = payload(gauge("a", 1.5, b="c"), histogram("e", [1.0], [1, 1], 2.0, f=1))
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            read(damaged)
            otlp.labelled(damaged, {"a": "b"})
        except ProtocolError:
            continue
