"""The loop of `frazil export run --interval`: when topics are due, what stops it, what it counts."""

import contextlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.errors import CatalogError, SettingsError, SparkError
from iceberg_export.progress import Progress
from iceberg_export.runs import failures, metrics
from iceberg_export.runs.due import (
    FAILURE_PAUSE_MS_MAX,
    POLL_MS_MIN,
    TopicLag,
    count_failure,
    is_due,
    is_worth_reporting,
    may_retry,
    poll_interval_ms,
)
from iceberg_export.runs.loop import STOPPED, Clock, Runner, StopRequest
from iceberg_export.runs.session import Session
from iceberg_export.settings import parse
from iceberg_export.steps import Step
from iceberg_export.table.catalog import find_table
from iceberg_export.tasks import spark
from protocol.records import Record
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.tasks import HereRunner
from tests.iceberg_export.kit.world import World, some_records

ROOT = Path(__file__).parents[3]
HOUR_MS = 3_600_000
MINUTE_MS = 60_000


class Loop(Runner):
    """A runner with the fakes that it was made with."""

    def __init__(self, *parts, time, said):
        super().__init__(*parts)
        self.time, self.said = time, said


class LoopClock:
    """Time that only a loop's own waiting moves; `after` is done when so many pauses are over."""

    def __init__(self):
        self.now_s = 1000.0
        self.at = {}

    def sleep(self, seconds):
        self.now_s += seconds
        for when in sorted(self.at):
            if when <= self.now_s:
                self.at.pop(when)()

    def clock(self):
        return Clock(lambda: self.now_s, lambda: int(self.now_s * 1000), self.sleep)

    def after(self, seconds, act):
        self.at[self.now_s + seconds] = act


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "store")
    found.create("orders", 1)
    found.commit("orders", {0: [some_records(5)]})
    return found


@pytest.fixture
def loop(world, tmp_path, monkeypatch):
    """A runner over the world, its time, and what it printed and said."""
    monkeypatch.setattr(spark, "start", lambda _given, _progress: HereRunner())
    monkeypatch.setattr("iceberg_export.plan.agent_client.PAUSE_S", 0)
    with served(world) as address:
        settings = parse(data=tmp_path / "data", config=None, assignments=[f"agent={address}"])
        said = io.StringIO()
        session = Session(settings, Progress(said, lambda: 0.0))
        time = LoopClock()
        yield Loop(session, time.clock(), StopRequest(), io.StringIO(), time=time, said=said)
        session.close()
        session.catalog.engine.dispose()


def run_for(loop, seconds, interval_ms=MINUTE_MS):
    loop.stop.asked = False
    loop.time.after(seconds, loop.stop.ask)
    assert loop.forever(interval_ms) == 0
    return loop.output.getvalue().splitlines()


def test_a_loop_exports_at_once_and_again_when_a_topics_lag_is_reached(world, loop):
    world.configs["orders"] = {"max.lag.ms": str(5 * MINUTE_MS)}
    loop.time.after(61, lambda: world.commit("orders", {0: [some_records(2, 5)]}))
    assert run_for(loop, 3 * 60) == [
        "orders: 5 records in 1 files into table frazil.orders",
    ]
    assert run_for(loop, 4 * 60)[1:] == ["orders: 2 records in 1 files into table frazil.orders"]


def test_what_is_a_files_worth_is_exported_before_its_time(world, loop):
    world.configs["orders"] = {"max.lag.ms": str(HOUR_MS)}
    values = {**loop.session.settings.values, "file.bytes.max": "1"}
    object.__setattr__(loop.session.settings, "values", values)
    loop.time.after(61, lambda: world.commit("orders", {0: [some_records(2, 5)]}))
    assert len(run_for(loop, 3 * 60)) == 2


def test_a_short_lag_of_one_topic_makes_looks_more_frequent(world, loop):
    world.configs["orders"] = {"max.lag.ms": "10000"}
    loop.time.after(1, lambda: world.commit("orders", {0: [some_records(2, 5)]}))
    assert len(run_for(loop, 25, interval_ms=HOUR_MS)) == 2


def test_agents_that_are_away_for_a_round_do_not_end_the_loop(world, loop):
    world.refuse = lambda _path: (503, '{"error": "no session"}')
    loop.time.after(30, lambda: setattr(world, "refuse", lambda _path: None))
    assert run_for(loop, 90) == ["orders: 5 records in 1 files into table frazil.orders"]
    assert "this round failed, the next one tries again: no agent answers" in loop.said.getvalue()
    assert (loop.numbers.rounds, loop.numbers.rounds_failed) == (1, 1)


def test_a_round_that_failed_is_made_up_for_in_a_minute_whatever_the_interval(world, loop):
    world.refuse = lambda _path: (503, '{"error": "no session"}')
    loop.time.after(30, lambda: setattr(world, "refuse", lambda _path: None))
    said = run_for(loop, 90, interval_ms=24 * HOUR_MS)
    assert said == ["orders: 5 records in 1 files into table frazil.orders"]


def test_spark_is_started_anew_after_it_failed(world, loop, monkeypatch):
    class BrokenTasks(HereRunner):
        closed = False

        def run(self, *_arguments, **_options):
            raise SparkError("the JVM is gone")

        def close(self):
            self.closed = True

    broken = BrokenTasks()
    starts = [broken, HereRunner()]
    monkeypatch.setattr(spark, "start", lambda _given, _progress: starts.pop(0))
    assert run_for(loop, 90) == ["orders: 5 records in 1 files into table frazil.orders"]
    assert broken.closed
    assert loop.numbers.topics["orders", ""].errors == 1


def test_one_topics_trouble_is_counted_and_leaves_the_others_alone(world, loop):
    run_for(loop, 1)
    world.create("orders", 1, topic_id="ff" * 16)
    world.create("zebras", 1, topic_id="ee" * 16)
    world.commit("zebras", {0: [some_records(3)]})
    assert run_for(loop, 1)[1:] == ["zebras: 3 records in 1 files into table frazil.zebras"]
    assert loop.numbers.topics["orders", ""].errors == 1
    assert loop.numbers.topics["zebras", ""].errors == 0


def test_a_table_in_a_state_that_nobody_thought_of_leaves_the_others_alone(world, loop):
    world.configs["orders"] = {"value.mode": "json", "value.schema": "infer"}
    world.commit("orders", {0: [[Record(value=b'{"a": 1}')]]})
    run_for(loop, 1)
    table = loop.session.catalog.load_table(("frazil", "orders"))
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": "none"})
    world.commit("orders", {0: [[Record(value=b'{"b": 2}')]]})
    world.create("zebras", 1, topic_id="ee" * 16)
    world.commit("zebras", {0: [some_records(3)]})
    loop.stop.asked = False
    assert loop.once() == CatalogError.exit_code
    *_, last = loop.output.getvalue().splitlines()
    assert last == "zebras: 3 records in 1 files into table frazil.zebras"
    assert "orders: its table cannot be exported to (ValidationError: " in loop.said.getvalue()
    assert loop.numbers.topics["orders", ""].errors == 1


def test_a_topic_that_keeps_failing_is_tried_and_told_ever_more_seldom(world, loop):
    world.configs["orders"] = {"mode": "sideways"}
    run_for(loop, 120 * 60)
    lines = [line for line in loop.said.getvalue().splitlines() if line.startswith("orders: ")]
    assert [line.rpartition("; the next try is in ")[2] for line in lines] == [
        *("60 s", "2 min", "4 min", "8 min", "10 min")
    ]
    # At 0, 1, 3, 7 and 15 minutes, then every ten.
    assert loop.numbers.topics["orders", ""].errors == 15
    assert loop.numbers.topics["orders", ""].consecutive_failures == 15


def test_a_topic_whose_settings_were_mended_is_tried_at_the_next_look(world, loop):
    world.configs["orders"] = {"mode": "sideways"}
    loop.time.after(16 * 60, lambda: world.configs.update(orders={}))
    out = run_for(loop, 17 * 60 + 30)
    assert out == ["orders: 5 records in 1 files into table frazil.orders"]
    assert loop.numbers.topics["orders", ""].consecutive_failures == 0


def test_a_failing_topic_that_is_switched_off_is_forgotten(world, loop):
    world.configs["orders"] = {"mode": "sideways"}
    loop.time.after(90, lambda: world.configs.update(orders={"enable": "false"}))
    run_for(loop, 3 * 60)
    assert loop.numbers.topics["orders", ""].consecutive_failures == 0
    assert failures.load(loop.session.settings.data) == {}


def test_a_topic_that_was_never_exported_since_it_is_switched_off_has_no_numbers(world, loop):
    world.configs["orders"] = {"enable": "false"}
    run_for(loop, 60)
    assert loop.numbers.topics == {}


def test_another_reason_of_a_failing_topic_is_told(world, loop):
    world.configs["orders"] = {"mode": "sideways"}
    loop.time.after(50 * 60, lambda: world.configs.update(orders={"layout": "square"}))
    run_for(loop, 52 * 60)
    told = [line for line in loop.said.getvalue().splitlines() if "the next try is in" in line]
    assert "frazil.iceberg.layout must be" in told[-1]


def test_a_topic_that_breaks_spark_does_not_keep_the_others_waiting_for_ever(
    world, loop, monkeypatch
):
    class Breaks(HereRunner):
        def run(self, task, payloads, *, sizes, title):
            if title.startswith("orders"):
                raise SparkError("a worker was killed")
            return super().run(task, payloads, sizes=sizes, title=title)

    monkeypatch.setattr(spark, "start", lambda _given, _progress: Breaks())
    world.create("zebras", 1, topic_id="ee" * 16)
    world.commit("zebras", {0: [some_records(3)]})
    assert run_for(loop, 5 * 60) == ["zebras: 3 records in 1 files into table frazil.zebras"]
    assert "tries again: orders: a worker was killed" in loop.said.getvalue()


def test_agents_that_stay_away_are_told_ever_more_seldom(world, loop):
    world.refuse = lambda _path: (503, '{"error": "no session"}')
    run_for(loop, 60 * 60)
    lines = [line for line in loop.said.getvalue().splitlines() if "this round failed" in line]
    assert len(lines) == 6
    assert "(for the 32th time)" in lines[-1]
    assert loop.numbers.rounds_failed == 60


def test_the_reason_of_a_failure_is_kept_for_status_until_the_topic_works(world, loop):
    data = loop.session.settings.data
    world.configs["orders"] = {"mode": "sideways"}
    run_for(loop, 90)
    kept = failures.load(data)["orders"]
    assert (kept.times, kept.at_ms) == (2, 1_060_000)
    assert "not 'sideways'" in kept.reason
    world.configs["orders"] = {}
    run_for(loop, 60)
    assert failures.load(data) == {}


@pytest.mark.parametrize("text", ["", "[]", '{"orders": 3}', '{"orders": {"times": 1}}', "\xff"])
def test_a_file_of_failures_that_cannot_be_read_is_as_none(tmp_path, text):
    (tmp_path / failures.FILE).write_bytes(text.encode("latin-1"))
    assert failures.load(tmp_path) == {}
    failures.note(tmp_path, "orders", failures.Failure(1, 2, "three"))
    assert failures.load(tmp_path) == {"orders": failures.Failure(1, 2, "three")}


@given(interval=st.integers(1, 2 * HOUR_MS), count=st.integers(1, 40))
def test_pauses_after_failures_double_up_to_ten_minutes_or_the_interval(interval, count):
    found, pauses = None, []
    for number in range(count):
        look = found.again_ms if found else 0
        assert may_retry(found, {}, look)
        found = count_failure(found, "why", configs={}, began_ms=look, interval_ms=interval)
        assert found.times == number + 1
        assert not may_retry(found, {}, found.again_ms - 1)
        assert may_retry(found, {"other": "settings"}, look)
        pauses.append(found.pause_ms)
    most = max(interval, FAILURE_PAUSE_MS_MAX)
    assert pauses == [min(interval << number, most) for number in range(count)]


def test_a_failure_is_news_when_its_reason_or_its_pause_is():
    first = count_failure(None, "why", configs={}, began_ms=0, interval_ms=2 * HOUR_MS)
    again = count_failure(first, "why", configs={}, began_ms=0, interval_ms=2 * HOUR_MS)
    assert is_worth_reporting(None, first)
    assert not is_worth_reporting(first, again)
    assert is_worth_reporting(again, again._replace(reason="other"))
    assert is_worth_reporting(again, again._replace(pause_ms=5))


def test_each_round_is_a_run_of_its_own(world, loop):
    run_for(loop, 1)
    world.commit("orders", {0: [some_records(2, 5)]})
    run_for(loop, 10 * 60)
    table = find_table(loop.session.catalog, ("frazil", "orders"))
    runs = [
        snapshot.summary.additional_properties["frazil.run-id"].split("-")[0]
        for snapshot in table.metadata.snapshots
    ]
    assert len(runs) == 3
    assert runs[0] == runs[1] != runs[2]


def test_a_wish_to_stop_is_heard_after_the_commit_that_is_under_way(world, loop):
    world.commit("orders", {0: [some_records(7, 5)]})
    values = {**loop.session.settings.values, "commit.bytes.max": "1"}
    object.__setattr__(loop.session.settings, "values", values)
    report = loop.session.client.report_progress
    loop.session.client.report_progress = lambda *a: (report(*a), loop.stop.ask())
    assert loop.once() == STOPPED
    assert "5 records" in loop.output.getvalue()
    assert world.exported == {"orders": {"0": 5}}


def roll_back(loop):
    """To the snapshot of the first export."""
    table = find_table(loop.session.catalog, ("frazil", "orders"))
    first = table.metadata.snapshots[1].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()


def test_agents_hear_of_a_table_that_went_back_before_it_is_filled_again(world, loop):
    """Else retention lets go of what is not in the table any more."""
    loop.once()
    world.commit("orders", {0: [some_records(2, 5)]})
    loop.once()
    assert world.exported == {"orders": {"0": 7}}
    roll_back(loop)
    told = []
    world.refuse = lambda path: told.append((path, dict(world.exported["orders"]))) and None
    assert loop.once() == 0
    assert next(known for path, known in told if path.startswith("/export/plan")) == {"0": 5}
    assert world.exported == {"orders": {"0": 7}}


def test_agents_hear_which_snapshot_of_which_table_they_are_told_of(world, loop):
    loop.once()
    table = find_table(loop.session.catalog, ("frazil", "orders"))
    head = table.current_snapshot().snapshot_id
    assert world.exported_from == {"orders": ("frazil.orders", head)}


def test_agents_hear_of_a_table_that_went_back_and_waits_to_be_due(world, loop):
    world.configs["orders"] = {"max.lag.ms": str(HOUR_MS)}
    run_for(loop, 1)
    world.commit("orders", {0: [some_records(2, 5)]})
    loop.once()
    roll_back(loop)
    loop.output.truncate(0)
    assert run_for(loop, 1) == []
    assert world.exported == {"orders": {"0": 5}}


def test_agents_hear_that_another_table_has_nothing_yet(world, loop):
    loop.once()
    world.configs["orders"] = {"table": "later"}
    told = []
    world.refuse = lambda path: told.append((path, dict(world.exported["orders"]))) and None
    loop.once()
    assert next(known for path, known in told if path.startswith("/export/plan")) == {"0": 0}
    assert world.exported == {"orders": {"0": 5}}


def test_a_loop_brings_dead_letters_in_that_a_crash_left_though_nothing_new_comes(world, loop):
    world.configs["orders"] = {"mode": "upsert"}
    job = loop.session.job
    loop.session.job = lambda cluster: job(cluster)._replace(hook=Once(Step.COMMITTED, Killed()))
    with pytest.raises(Killed):
        loop.forever(MINUTE_MS)
    loop.session.job = job
    run_for(loop, 1)
    dead = find_table(loop.session.catalog, ("frazil", "orders__dlq"))
    assert dead.scan().to_arrow()["kafka_offset"].to_pylist() == [1]
    assert run_for(loop, 5 * 60) == ["orders: nothing new for table frazil.orders"]


def test_the_signal_that_ends_pods_ends_the_loop(world, loop):
    before = signal.signal(signal.SIGTERM, loop.stop.ask)
    try:
        loop.time.after(30, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert loop.forever(MINUTE_MS) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert loop.time.now_s < 1000 + 60


def test_pins_are_let_go_when_the_round_is_over(world, loop):
    run_for(loop, 1)
    assert world.pins == {}
    assert any(request.startswith("POST /export/pin") for request in world.requests)


def test_prometheus_reads_the_numbers_of_the_loop(world, loop):
    world.topics["orders"][1][0].spans[0][5] = 990_000
    port, end = metrics.serve(loop.numbers, "127.0.0.1:0")
    try:
        world.configs["orders"] = {"max.lag.ms": str(HOUR_MS)}
        run_for(loop, 1)
        world.commit("orders", {0: [some_records(2, 5)]})
        world.topics["orders"][1][0].spans[1][5] = 995_000
        run_for(loop, 1)
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = set(answer.read().decode().splitlines())
    finally:
        end()
    assert {
        'frazil_export_rows_total{topic="orders"} 5.0',
        'frazil_export_commits_total{topic="orders"} 1.0',
        'frazil_export_lag_offsets{topic="orders"} 2.0',
        'frazil_export_lag_seconds{topic="orders"} 6.0',
        'frazil_export_errors_total{topic="orders"} 0.0',
        'frazil_export_last_export_timestamp_seconds{topic="orders"} 1000.0',
        "frazil_export_rounds_total 2.0",
    } <= lines
    named = {re.split(r"[ {]", line)[0] for line in lines if not line.startswith("#")}
    assert named == set(metrics.NAMES) - {"frazil_export_dead_letters_by_code"}


def test_prometheus_reads_dead_letters_by_reason(world, loop):
    world.configs["orders"] = {"mode": "upsert"}
    run_for(loop, 1)
    run_for(loop, 5 * 60)
    found = {one.name: one for one in metrics.LoopCollector(loop.numbers).collect()}
    (sample,) = found["frazil_export_dead_letters_by_code"].samples
    assert (sample.labels, sample.value) == ({"topic": "orders", "code": "NO_KEY"}, 1)


def test_agents_hear_of_dead_letters_by_reason_once_they_are_in_their_table(world, loop):
    world.configs["orders"] = {"mode": "upsert"}
    run_for(loop, 1)
    assert world.dead_letters == {"orders": {}}
    run_for(loop, 5 * 60)
    assert world.dead_letters == {"orders": {"NO_KEY": 1}}
    world.dead_letters.clear()
    run_for(loop, 5 * 60)
    assert world.dead_letters == {}


def test_metrics_are_told_while_many_have_connected_and_say_nothing():
    before = threading.active_count()
    port, end = metrics.serve(metrics.LoopMetrics(), "127.0.0.1:0")
    with contextlib.ExitStack() as closing:
        closing.callback(end)
        silent = [
            closing.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(3 * metrics.CONNECTIONS_MAX)
        ]
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"frazil_export_rounds_total" in answer.read()
        assert silent[0].recv(1) == b"", "another has its place"
        assert threading.active_count() - before < 2 * metrics.CONNECTIONS_MAX


@pytest.mark.parametrize("text", ["", "http", "host:", "1:2:", "70000"])
def test_an_address_for_metrics_that_is_none_is_told(text):
    with pytest.raises(SettingsError, match="is not"):
        metrics.parse_address(text)


def test_a_port_that_is_taken_is_told():
    port, end = metrics.serve(metrics.LoopMetrics(), "127.0.0.1:0")
    try:
        with pytest.raises(SettingsError, match="cannot listen on"):
            metrics.serve(metrics.LoopMetrics(), f"{port}")
    finally:
        end()


@given(
    lag=st.integers(0, HOUR_MS),
    interval=st.integers(1, HOUR_MS),
    caught_up=st.integers(0, HOUR_MS),
)
def test_no_record_waits_longer_than_its_topic_allows_by_more_than_a_look(lag, interval, caught_up):
    """Whenever the next look would come too late for the oldest record, this one takes it."""
    look = poll_interval_ms(interval, [lag])
    now = caught_up
    while not is_due(
        TopicLag(1, 10, lag, caught_up), next_poll_ms=now + look, bytes_enough=1 << 30
    ):
        now += look
    assert now - caught_up <= lag
    assert now + look - caught_up > lag or lag < POLL_MS_MIN


def test_nothing_new_is_never_due_and_what_nobody_knows_always():
    far = {"next_poll_ms": 10 * HOUR_MS, "bytes_enough": 1}
    assert not is_due(TopicLag(0, 0, 0, None), **far)
    assert is_due(TopicLag(1, 0, HOUR_MS, None), next_poll_ms=0, bytes_enough=1)


def test_a_bar_shows_the_part_that_is_done_and_the_time_that_is_left():
    now = [0.0]
    stream = io.StringIO()
    progress = Progress(stream, lambda: now[0])
    progress.bar("orders", 0, 8, "tasks")
    now[0] = 10.0
    progress.bar("orders", 2, 8, "tasks")
    first, second = stream.getvalue().splitlines()
    assert first == f"orders [{'.' * 24}] 0/8 tasks"
    assert second == f"orders [{'#' * 6}{'.' * 18}] 2/8 tasks, 30 s left"


@pytest.mark.parametrize(
    ("conf", "tasks"),
    [
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local[2,4]"}, 2),
        ({"spark.master": "local"}, 1),
        ({"spark.master": "spark://m:7077", "spark.cores.max": "12"}, 12),
        (
            {
                "spark.master": "k8s://https://k",
                "spark.executor.instances": "5",
                "spark.executor.cores": "4",
            },
            20,
        ),
    ],
)
def test_how_many_tasks_run_at_a_time_is_read_from_the_settings(conf, tasks):
    assert spark.parallelism_of(conf) == tasks


@pytest.mark.integration
def test_a_process_that_runs_at_an_interval_ends_well_when_it_is_asked_to(world, tmp_path):
    world.create("orders", 1)
    with served(world) as address:
        command = [sys.executable, "-m", "iceberg_export", "run", "--interval", "1s"]
        command += ["--metrics-port", "0", "--agent", address, "--data", str(tmp_path / "data")]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            first = process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            _out, said = process.communicate()
    assert first == "orders: 0 records in 0 files into table frazil.orders\n"
    assert process.returncode == 0
    assert "asked to stop: what was begun is in, or invisible" in said
    assert world.pins == {}


def test_each_table_of_a_topic_is_due_fails_and_is_counted_by_itself(world, loop):
    world.configs["orders"] = {
        "route.by": "kafka_key",
        "route.tables": "key-0:zeros,key-2:secret.twos",
        "max.lag.ms": str(HOUR_MS),
    }
    told = run_for(loop, 1)
    assert told == [
        "orders: 3 records in 1 files into table frazil.orders",
        "orders: 1 records in 1 files into table frazil.zeros",
    ]
    assert (
        "orders (secret.twos): topic orders asks for a table in namespace" in loop.said.getvalue()
    )
    assert world.exported == {}, "one table has nothing yet"
    found = {one.name: one for one in metrics.LoopCollector(loop.numbers).collect()}
    labels = [sample.labels for sample in found["frazil_export_rows"].samples]
    assert labels == [
        {"topic": "orders"},
        {"topic": "orders", "route": "secret.twos"},
        {"topic": "orders", "route": "zeros"},
    ]
    world.configs["orders"]["route.tables"] = "key-0:zeros,key-2:twos"
    assert "into table frazil.twos" in run_for(loop, 1)[-1]
    assert world.exported == {"orders": {"0": 5}}
