"""What `frazil bench` prints."""

import json

from broker.reports.bench_report import (
    ENDS_US,
    PARTS,
    BenchView,
    RunView,
    TimesView,
    bench_json,
    lines,
)


def times(*ms: float, bars: dict[int, int]) -> TimesView:
    values = [None if one is None else int(one * 1000) for one in ms]
    counts = [bars.get(end // 1000, 0) for end in ENDS_US]
    return TimesView(dict(zip(PARTS, values, strict=True)), counts, sum(counts))


ACKS = times(2, 3, 9, 40, 41, bars={2: 60, 5: 30, 50: 10})
RUN = RunView(98_000.4, 97_000.0, 0, ACKS, ACKS, 1.5)
VIEW = BenchView(6, 1, 1, 1000, "all", "none", 20, RUN, 9800.0, RUN, 2)


def test_rates_and_times_are_told_with_a_histogram():
    assert lines(VIEW) == [
        "6 partitions, 1 producer, 1 consumer, 1,000 bytes, acks=all, not compressed, 20 s",
        "",
        "AS FAST AS IT GOES  RECORDS/S  MB/S",
        "produced            98,000     98.0",
        "consumed            97,000     97.0",
        "its clients kept 1.5 of 2 cores busy",
        "",
        "AT 9,800 RECORDS/S, MS  P50  P90  P99  P99.9  MAX",
        "acknowledged            2.0  3.0  9.0  40.0   41.0",
        "read                    2.0  3.0  9.0  40.0   41.0",
        "",
        "UP TO MS  ACKNOWLEDGED",
        "1         0.0 %",
        "2         60.0 %        ########################################",
        "5         30.0 %        ####################",
        "10        0.0 %",
        "20        0.0 %",
        "50        10.0 %        #######",
    ]


def test_clients_that_were_busy_all_the_time_are_told_to_be_what_was_measured():
    (said,) = [
        line
        for line in lines(VIEW._replace(most=RUN._replace(cpu_cores=1.9)))
        if "not the cluster" in line
    ]
    assert "more --producers" in said


def test_without_consumers_and_times_there_is_nothing_of_them():
    none = times(*[None] * len(PARTS), bars={})
    run = RUN._replace(consumed=None, read=None, acknowledged=none)
    said = lines(VIEW._replace(most=run, paced=run, partitions=None))
    assert said[0].startswith("1 producer, ")
    assert not [line for line in said if line.startswith(("consumed", "read", "UP TO"))]
    assert "acknowledged" in "".join(said)


def test_programs_are_told_everything_in_ms():
    told = json.loads(json.dumps(bench_json(VIEW)))
    assert told["most"]["acknowledged"] == {
        "p50": 2.0,
        "p90": 3.0,
        "p99": 9.0,
        "p99.9": 40.0,
        "p100": 41.0,
    }
    assert (told["paced_rate"], told["paced"]["failed"], told["cores"]) == (9800.0, 0, 2)
