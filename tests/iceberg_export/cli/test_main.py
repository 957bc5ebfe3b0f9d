"""What the commands print and how they end, Spark left out."""

import json
import re
import sys

import pytest

from iceberg_export import settings
from iceberg_export.errors import SettingsError, SparkError
from iceberg_export.runs.loop import DEAD_LETTERS
from iceberg_export.table.catalog import open_catalog
from iceberg_export.tasks import spark
from protocol.records import Record
from tests.iceberg_export.kit.tasks import HereRunner
from tests.iceberg_export.kit.world import some_records


def test_run_then_verify_then_status(frazil):
    code, out, _err = frazil("run", "--once")
    assert (code, out) == (0, "orders: 5 records in 1 files into table frazil.orders\n")
    code, out, _err = frazil("run", "--once")
    assert (code, out) == (0, "orders: nothing new for table frazil.orders\n")
    code, out, _err = frazil("verify", "--topic", "orders")
    assert code == 0
    assert re.search(r"5 records, each exactly once in table frazil.orders \(checksum \w+\)", out)
    code, out, _err = frazil("status")
    assert code == 0
    assert out.splitlines()[1].split()[:7] == ["orders", "0", "5", "5", "0", "-", "frazil.orders"]


class Gone:
    """Standard output whose reader has seen enough."""

    def __init__(self, file):
        self.fileno = file.fileno

    def write(self, _text):
        raise BrokenPipeError

    def flush(self):
        """Nothing was taken."""


def test_a_reader_that_has_seen_enough_is_no_failure(frazil, tmp_path, monkeypatch):
    frazil("run", "--once")
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", Gone(file))
        assert frazil("status")[0] == 0


def test_nothing_new_starts_no_spark(frazil, monkeypatch):
    frazil("run", "--once")
    monkeypatch.setattr(spark, "start", lambda *_: pytest.fail("Spark was started"))
    assert frazil("run", "--once")[0] == 0


RUN, STATUS = ("run", "--once"), ("status",)
REFUSED = {
    "no agent": (RUN, 1, "no agent answers (http://127.0.0.1:9: Connection refused)"),
    "an address that is none": (STATUS, 1, "is not an address like"),
    "an agent that is not ready": (STATUS, 1, "HTTP 503 no session"),
    "another server's port": (STATUS, 1, "does not answer like an agent"),
    "a topic that is none": (
        ("verify", "--topic", "odrers"), 1, ": there is no topic odrers; is it orders?"
    ),
    "a topic like no other": (
        ("plan", "--topic", "my-clicks"), 1, ": there is no topic my-clicks (topics: orders)"
    ),
    "a topic that was not exported": (
        ("verify", "--topic", "orders"), 1, "has not been exported yet"
    ),
    "a catalog that is none": (
        (*RUN, "--set", "catalog.type=hadoop"), 1, "cannot open the Iceberg catalog"
    ),
    "a catalog that is away": (
        (*RUN, "--set", "catalog.type=rest", "--set", "catalog.uri=http://127.0.0.1:9/"),
        1, "cannot open the Iceberg catalog",
    ),
    "a store that cannot be read": (RUN, 1, "cannot read chunk"),
    "a pattern that is none": ((*RUN, "--topics", "("), 2, "is no regular expression"),
    "orphans that are young": (("maintain", "--orphans", "--older-than", "10m"), 2, "at least 1h"),
    "a setting that is none": ((*RUN, "--set", "catalog=x"), 2, "catalog is not a setting"),
    "a value that is none": ((*RUN, "--set", "split.bytes.max=x"), 2, "must be a whole number"),
    "an offset that is none": (
        ("reset-offsets", "--topic", "orders", "--to", "newest", "--yes"), 2, "say earliest, latest"
    ),
}  # fmt: skip


CODES = {
    "no agent": "[cluster-unreachable]\n",
    "an agent that is not ready": "[etcd-unreachable]\n",
    "a setting that is none": "[unknown-setting]\n",
    "a value that is none": "[wrong-value]\n",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_done_is_told_in_a_sentence(frazil, world, tmp_path, what):
    open_catalog({}, tmp_path / "data").engine.dispose()
    agents = {"no agent": "http://127.0.0.1:9", "an address that is none": "localhost:9094"}
    answers = {
        "an agent that is not ready": (503, {"error": "no session", "code": "etcd-unreachable"}),
        "another server's port": (200, "<html>"),
    }
    if what in answers:
        world.refuse = lambda _path: answers[what]
    if what == "a store that cannot be read":
        world.store_url = f"file://{tmp_path}/elsewhere"
    arguments, wanted, said = REFUSED[what]
    told = {"agent": agents[what]} if what in agents else {}
    code, out, err = frazil(*arguments, **told)
    assert (code, out) == (wanted, "")
    lines = err.splitlines()
    assert [said in line for line in lines].count(True) == 1
    assert CODES.get(what, "") in err
    # An export had begun there, and has told of it.
    assert len(lines) == 1 or what == "a store that cannot be read"


def test_a_data_folder_that_cannot_be_made_is_told(frazil, tmp_path):
    (tmp_path / "data").write_text("a file")
    code, _out, err = frazil("run", "--once")
    assert code == 1
    assert "cannot create the warehouse folder" in err


def test_a_new_warehouse_is_told_once_with_its_folder(frazil, tmp_path):
    _code, _out, err = frazil("init", "--topic", "orders")
    assert f"no warehouse yet, made an empty one: {tmp_path}" in err
    _code, _out, err = frazil("status")
    assert "no warehouse" not in err


def test_a_wrong_table_does_not_keep_other_topics_waiting(frazil, world):
    frazil("run", "--once")
    world.create("orders", 1, topic_id="ff" * 16)
    world.create("zebras", 1, topic_id="ee" * 16)
    world.commit("zebras", {0: [some_records(2)]})
    code, out, err = frazil("run", "--once")
    assert code == 1
    assert "deleted and created again" in err
    assert out == "zebras: 2 records in 1 files into table frazil.zebras\n"


def test_only_matching_topics_are_exported(frazil, world):
    world.create("zebras", 1, topic_id="ee" * 16)
    _code, out, _err = frazil("run", "--once", "--topics", "z.*")
    assert out == "zebras: 0 records in 0 files into table frazil.zebras\n"


def test_a_run_neither_once_nor_at_an_interval_is_wrong_use(frazil):
    with pytest.raises(SystemExit) as caught:
        frazil("run")
    assert caught.value.code == 2


def test_a_topic_that_is_switched_off_is_left_alone(frazil, world):
    world.configs["orders"] = {"enable": "false"}
    code, out, _err = frazil("run", "--once")
    assert code == 0
    assert out == "nothing to export: the cluster has no topics yet, or none is enabled\n"


def test_a_topic_with_wrong_settings_does_not_keep_others_waiting(frazil, world):
    world.create("zebras", 1, topic_id="ee" * 16)
    world.configs["orders"] = {"mode": "sideways"}
    code, out, err = frazil("run", "--once")
    assert code == 2
    assert "frazil.iceberg.mode must be one of append, upsert, not 'sideways'" in err
    assert out.startswith("zebras: ")


def test_agents_are_told_how_far_each_table_is(frazil, world):
    world.create("zebras", 2, topic_id="ee" * 16)
    world.commit("zebras", {1: [some_records(3)]})
    frazil("run", "--once")
    assert world.exported == {"orders": {"0": 5}, "zebras": {"0": 0, "1": 3}}


def test_a_report_that_was_lost_is_made_up_for_when_nothing_is_new(frazil, world):
    frazil("run", "--once")
    world.exported.clear()
    frazil("run", "--once")
    assert world.exported == {"orders": {"0": 5}}


def test_agents_that_know_how_far_a_table_is_are_not_told_again(frazil, world):
    frazil("run", "--once")
    world.requests.clear()
    frazil("run", "--once")
    assert "POST /export/progress" not in world.requests


def test_agents_that_take_no_reports_do_not_stop_an_export(frazil, world):
    world.refuse = lambda path: (404, "no such page") if path == "/export/progress" else None
    code, out, err = frazil("run", "--once")
    assert (code, out) == (0, "orders: 5 records in 1 files into table frazil.orders\n")
    assert "the agents do not hear how far tables are" in err


def test_a_run_that_may_take_few_bytes_leaves_the_rest_to_the_next(frazil, world):
    world.commit("orders", {0: [some_records(7, 5)]})
    bounded = ("run", "--once", "--max-bytes-per-run", "1", "--set", "commit.bytes.max=1")
    assert "5 records in 1 files" in frazil(*bounded)[1]
    code, out, _err = frazil(*bounded)
    assert code == 0
    assert out == (
        "orders: 7 records in 1 files into table frazil.orders; "
        "what is left comes with the next run\n"
    )
    assert frazil("run", "--once")[1] == "orders: nothing new for table frazil.orders\n"


def test_the_master_is_told_to_spark(frazil, monkeypatch):
    given = []
    monkeypatch.setattr(spark, "start", lambda conf, _progress: given.append(conf) or HereRunner())
    frazil("run", "--once", "--master", "spark://somewhere:7077")
    assert given == [{"spark.master": "spark://somewhere:7077"}]


def test_a_plan_tells_offsets_tasks_and_requests_and_does_nothing(frazil, world):
    world.commit("orders", {0: [some_records(7, 5)]})
    code, out, _err = frazil("plan", "--topic", "orders", "--master", "local[3]")
    assert code == 0
    assert re.search(r"commit 1 of 1: 1 tasks, 2 GETs, \d+ B\n", out)
    assert "  partition 0: offsets 0 to 11, 2 spans, " in out
    assert "12 offsets into table frazil.orders (which it would make), 1 commits, 2 GETs" in out
    assert "tasks as for 3 at a time" in out
    assert frazil("status")[0] == 2, "nothing was made"
    frazil("init", "--topic", "orders")
    assert frazil("status")[1].splitlines()[1].split()[2:5] == ["0", "12", "12"]


def test_a_plan_has_the_commits_of_the_run(frazil, world):
    world.commit("orders", {0: [some_records(7, 5)]})
    _code, out, _err = frazil("plan", "--topic", "orders", "--set", "commit.bytes.max=1")
    assert "offsets 0 to 4" in out
    assert "commit 2 of 2: " in out
    assert "offsets 5 to 11" in out


def test_a_plan_without_anything_new_says_so(frazil):
    frazil("run", "--once")
    code, out, _err = frazil("plan", "--topic", "orders")
    assert (code, out) == (0, "orders: nothing new for table frazil.orders\n")


def test_status_for_programs_has_lags_and_the_last_snapshot(frazil, world):
    frazil("run", "--once")
    written_ms = 1_700_000_000_000
    world.commit("orders", {0: [some_records(2, 5)]})
    world.topics["orders"][1][0].spans[-1][5] = written_ms
    code, out, _err = frazil("status", "--json")
    said = json.loads(out)
    (topic,) = said["topics"]
    assert code == 0
    assert (topic["lag"], topic["seq"], topic["rows"], topic["dlq_rows"]) == (2, 1, 5, 0)
    assert topic["lag_seconds"] == (said["now_ms"] - written_ms) // 1000
    assert topic["partitions"][0]["exported"] == 5
    assert topic["partitions"][0]["end"] == 7
    assert written_ms < topic["snapshot_ms"] <= said["now_ms"]


def test_status_for_programs_tells_a_table_that_cannot_be_used(frazil, world):
    frazil("run", "--once")
    world.create("orders", 1, topic_id="ff" * 16)
    code, out, _err = frazil("status", "--json")
    (topic,) = json.loads(out)["topics"]
    assert code == 1
    assert "deleted and created again" in topic["problem"]


@pytest.mark.parametrize("why", ["created again", "a wrong setting"])
def test_a_topic_that_is_refused_is_behind_by_all_that_its_log_has(frazil, world, why):
    frazil("run", "--once")
    if why == "created again":
        world.create("orders", 1, topic_id="ff" * 16)
        world.commit("orders", {0: [some_records(3)]})
    else:
        world.configs["orders"] = {"mode": "sideways"}
        world.commit("orders", {0: [some_records(3, 5)]})
    code, out, _err = frazil("status", "--json")
    (topic,) = json.loads(out)["topics"]
    assert code == 1
    assert topic["problem"] is not None
    assert topic["lag"] == (3 if why == "created again" else 8)
    assert frazil("status")[1].splitlines()[1].split()[:2] == ["orders", "0"]


def test_a_run_that_made_dead_letters_says_so_once(frazil, world):
    world.configs["orders"] = {"mode": "upsert"}
    code, out, _err = frazil("run", "--once")
    assert code == DEAD_LETTERS
    assert "into its dead letters" in out
    assert frazil("run", "--once")[0] == 0


def test_status_counts_dead_letters_by_reason(frazil, world):
    world.configs["orders"] = {"mode": "upsert"}
    frazil("run", "--once")
    assert "orders: 1 records in frazil.orders__dlq (1 NO_KEY)" in frazil("status")[1]
    (topic,) = json.loads(frazil("status", "--json")[1])["topics"]
    assert (topic["dlq_rows"], topic["dlq_by_code"]) == (1, {"NO_KEY": 1})


def test_an_upsert_does_not_count_records_as_rows(frazil, world):
    world.create("keyed", 1, topic_id="dd" * 16)
    world.configs["keyed"] = {"mode": "upsert"}
    keyed = [Record(timestamp=number, key=b"k", value=b"v") for number in range(4)]
    world.commit("keyed", {0: [keyed]})
    _code, out, _err = frazil("run", "--once", "--topics", "keyed")
    assert out == "keyed: 4 records merged into table frazil.keyed\n"


@pytest.mark.parametrize("command", ["status", "verify", "maintain", "view"])
def test_what_only_looks_makes_no_warehouse(frazil, tmp_path, command):
    topic = [] if command in {"status", "maintain"} else ["--topic", "orders"]
    code, _out, err = frazil(command, *topic)
    assert code == 2
    assert f"there is no warehouse at {tmp_path}/data/warehouse; name the folder" in err
    assert not (tmp_path / "data").exists()


def test_a_run_in_another_folder_exports_nothing_once_more_unless_it_is_told_so(
    frazil, world, tmp_path
):
    frazil("run", "--once")
    code, out, err = frazil("run", "--once", data="other")
    assert (code, out) == (2, "")
    assert f"there is no warehouse at {tmp_path}/other/warehouse" in err
    assert "tables in one (of orders)" in err
    assert not (tmp_path / "other").exists()
    code, out, _err = frazil("run", "--once", "--new-warehouse", data="other")
    assert (code, out) == (0, "orders: 5 records in 1 files into table frazil.orders\n")


def test_status_tells_why_the_last_export_failed(frazil, world):
    world.configs["orders"] = {"mode": "upsert", "bad.records": "fail"}
    code, _out, err = frazil("run", "--once")
    assert code == 1
    assert "orders: " in err
    code, out, _err = frazil("status")
    assert code == 1
    assert re.search(r"^orders: the export failed 0 s ago: .*without a key", out, re.MULTILINE)
    (topic,) = json.loads(frazil("status", "--json")[1])["topics"]
    assert topic["failure"]["times"] == 1
    assert topic["problem"] is None
    world.configs["orders"] = {"mode": "upsert"}
    frazil("run", "--once")
    code, out, _err = frazil("status")
    assert code == DEAD_LETTERS
    assert "failed" not in out


def test_a_view_of_the_newest_records_is_printed_as_the_engine_wants_it(frazil, tmp_path):
    open_catalog({}, tmp_path / "data").engine.dispose()
    assert frazil("view", "--topic", "orders")[0] == 1
    frazil("run", "--once")
    code, out, _err = frazil("view", "--topic", "orders", "--dialect", "trino", "--catalog", "lake")
    assert code == 0
    assert out.startswith(
        'CREATE OR REPLACE VIEW "lake"."frazil"."orders_latest" AS\nSELECT "kafka'
    )
    assert out.endswith('AND ("value" IS NOT NULL);\n')


def test_records_that_are_not_in_the_table_are_told_with_the_reason(frazil, world):
    world.configs["orders"] = {"mode": "upsert"}
    code, out, _err = frazil("run", "--once")
    assert code == DEAD_LETTERS
    assert "orders: 4 records merged into " in out
    assert ", 1 into its dead letters (partition 0, offset 1: a record without a key" in out
    assert "orders: 1 records in frazil.orders__dlq" in frazil("status")[1]


def test_a_table_of_mode_upsert_is_verified(frazil, world):
    world.configs["orders"] = {"mode": "upsert"}
    world.commit("orders", {0: [some_records(4, 2)]})
    frazil("run", "--once")
    code, out, _err = frazil("verify", "--topic", "orders")
    assert code == 0
    assert re.search(r"orders: \d records, each exactly once in table frazil.orders", out)


def test_all_wrong_settings_are_told_at_once_with_the_nearest_name(tmp_path):
    wrong = ["gap.polcy=skip", "gap.policy=maybe", "split.bytes.max=many", "oops"]
    with pytest.raises(SettingsError) as caught:
        settings.parse(data=tmp_path, config=None, assignments=wrong)
    text = str(caught.value)
    assert "gap.polcy is not a setting, gap.policy is" in text
    assert "gap.policy must be one of fail, skip, not 'maybe'" in text
    assert "split.bytes.max must be a whole number" in text
    assert "--set oops: a setting is written name=value" in text


def test_settings_come_from_a_file_and_assignments_win(tmp_path):
    file = tmp_path / "frazil.toml"
    file.write_text(
        '[export]\n"gap.policy" = "skip"\ntable.partition.by = "hour"\ncatalog.uri="x"\n'
    )
    found = settings.parse(data=tmp_path, config=file, assignments=["gap.policy=fail"])
    assert found["gap.policy"] == "fail"
    assert found["table.partition.by"] == "hour"
    assert found.catalog == {"uri": "x"}


@pytest.mark.parametrize("text", ["= 3", "\xff"])
def test_a_file_that_is_no_toml_is_told(tmp_path, text):
    file = tmp_path / "frazil.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError, match="is not TOML"):
        settings.parse(data=tmp_path, config=file, assignments=[])


def test_no_java_is_one_sentence(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SparkError, match="no java on the PATH; Spark needs Java 17"):
        spark.find_java()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            (
                "An error occurred while calling None.org.apache.spark.SparkSession.\n: org.apache.spark."
                "SparkException: All masters are unresponsive! Giving up.\n\tat org.apache.spark.X(X:1)"
            ),
            "All masters are unresponsive! Giving up",
        ),
        (
            (
                "Job aborted due to stage failure: ExecutorLostFailure (executor 3 exited).\n"
                "Driver stacktrace:\njava.lang.RuntimeError: x\n\tat java.base/Thread.run(T:840)\n"
            ),
            "Job aborted due to stage failure: ExecutorLostFailure (executor 3 exited)",
        ),
    ],
)
def test_of_a_failure_in_the_jvm_what_java_said_is_told(text, said):
    assert str(spark._spark_error(RuntimeError(text))) == f"a Spark task failed: {said}"
    assert spark._java_error_text(RuntimeError(text)) == said


def test_a_java_home_without_java_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkError, match="JAVA_HOME is"):
        spark.find_java()


@pytest.mark.parametrize("said", ['openjdk version "11.0.2"', 'java version "1.8.0_292"'])
def test_an_old_java_is_told(monkeypatch, tmp_path, said):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkError, match="Java 17 or newer"):
        spark.find_java()


def test_files_that_come_with_a_run_are_on_the_path_of_the_daemon_of_workers():
    secret = {"spark.authenticate.secret": "s"}
    given = {"spark.master": "spark://m:7077", "spark.executorEnv.PYTHONPATH": "/opt", **secret}
    files = {"spark.submit.pyFiles": "s3://jars/frazil-1.whl, /home/me/more.zip"}
    conf = spark._configuration({**given, **files})
    assert conf["spark.executorEnv.PYTHONPATH"] == "frazil-1.whl:more.zip:/opt"
    assert spark._configuration(given)["spark.executorEnv.PYTHONPATH"] == "/opt"


def authentication_of(master, **given):
    named = {name.replace("_", "."): value for name, value in given.items()}
    conf = spark._configuration({"spark.master": master, **named})
    names = ("spark.authenticate", "spark.network.crypto.enabled", "spark.authenticate.secret")
    return tuple(conf.get(name) for name in names)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[2,4]"])
def test_a_local_master_listens_on_the_loopback_alone(master):
    conf = spark._configuration({"spark.master": master})
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.ui.enabled"] == "false"


@pytest.mark.parametrize("master", ["k8s://https://kubernetes.default", "yarn"])
def test_executors_that_come_over_the_network_prove_who_they_are(master):
    assert authentication_of(master) == ("true", "true", None)
    assert "spark.driver.bindAddress" not in spark._configuration({"spark.master": master})


def test_a_secret_is_made_anew_for_each_cluster_of_this_machine():
    one, other = (authentication_of("local-cluster[2,1,1024]") for _ in range(2))
    assert one[:2] == ("true", "true")
    assert one[2] != other[2]
    assert len(one[2]) == 64


def test_a_standalone_master_needs_a_secret_or_the_word_that_none_is_wanted():
    with pytest.raises(
        SettingsError, match=r"set spark\.authenticate\.secret .* or spark\.authent"
    ):
        authentication_of("spark://m:7077")
    told = authentication_of("spark://m:7077", spark_authenticate_secret="s")
    assert told == ("true", "true", "s")


def test_what_the_user_says_of_authentication_wins():
    for master in ("spark://m:7077", "k8s://https://kubernetes.default"):
        assert authentication_of(master, spark_authenticate="false") == ("false", None, None)
    plain = {"spark.network.crypto.enabled": "false", "spark.driver.bindAddress": "0.0.0.0"}
    conf = spark._configuration({"spark.master": "yarn", **plain})
    assert conf.items() >= plain.items()


def test_maintain_says_what_it_did_to_each_table(frazil):
    frazil("run", "--once")
    code, out, _err = frazil("maintain")
    assert code == 0
    assert out.splitlines() == [
        "frazil.orders: no small files that are 24 h old",
        "frazil.orders: 0 snapshots expired",
        "frazil.orders: 0 orphans deleted (0 bytes)",
    ]
    assert frazil("maintain", "--expire")[1] == "frazil.orders: 0 snapshots expired\n"


@pytest.mark.parametrize("command", [("run", "--once"), ("status",)])
def test_a_catalog_that_is_not_the_one_with_the_tables_is_refused(frazil, tmp_path, command):
    def lake(name):
        uri = f"catalog.uri=sqlite:///{tmp_path}/{name}.db"
        warehouse = f"catalog.warehouse=file://{tmp_path}/{name}"
        return ("--set", "catalog.type=sql", "--set", uri, "--set", warehouse)

    assert frazil("run", "--once", *lake("right"))[0] == 0
    code, out, err = frazil(*command, *lake("wrong"))
    assert (code, out) == (2, "")
    assert (
        "the catalog has no namespace frazil, and the agents know of tables there (of orders)"
        in err
    )
    assert frazil(*command, *lake("right"))[0] == 0
    assert frazil("run", "--once", "--new-warehouse", *lake("wrong"))[0] == 0
    assert frazil(*command, *lake("wrong"))[0] == 0


def test_a_table_that_was_dropped_to_be_made_anew_is_made_anew(frazil, tmp_path):
    frazil("run", "--once")
    catalog = open_catalog({}, tmp_path / "data")
    catalog.drop_table(("frazil", "orders"))
    catalog.engine.dispose()
    code, out, _err = frazil("run", "--once")
    assert (code, out) == (0, "orders: 5 records in 1 files into table frazil.orders\n")
