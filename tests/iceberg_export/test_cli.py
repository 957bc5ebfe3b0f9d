"""What the commands print and how they end, Spark left out."""

import re

import pytest

from iceberg_export import cli, settings, spark
from iceberg_export.errors import SettingsError, SparkError
from tests.iceberg_export.world import HereRunner, World, served, some_records


class HereTasks(HereRunner):
    def close(self):
        pass


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "store")
    found.create("orders", 1)
    found.commit("orders", {0: [some_records(5)]})
    return found


@pytest.fixture
def frazil(world, tmp_path, monkeypatch, capsys):
    """Runs `frazil export …` here; (exit code, what it printed, what it said on stderr)."""
    monkeypatch.setattr(spark, "start", lambda _given, _progress: HereTasks())
    opened = []
    real = cli.open_catalog
    monkeypatch.setattr(cli, "open_catalog", lambda *a: opened.append(real(*a)) or opened[-1])
    monkeypatch.setattr("iceberg_export.agent_client.PAUSE_S", 0)

    with served(world) as address:

        def run(*arguments, agent=address):
            common = ["--agent", agent, "--data", str(tmp_path / "data")]
            code = cli.main([*arguments, *common])
            said = capsys.readouterr()
            return code, said.out, said.err

        yield run
    for catalog in opened:
        if hasattr(catalog, "engine"):
            catalog.engine.dispose()


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
    assert out.splitlines()[1].split()[:6] == ["orders", "0", "5", "5", "0", "frazil.orders"]


def test_nothing_new_starts_no_spark(frazil, monkeypatch):
    frazil("run", "--once")
    monkeypatch.setattr(spark, "start", lambda *_: pytest.fail("Spark was started"))
    assert frazil("run", "--once")[0] == 0


def test_no_agent_is_one_sentence(frazil):
    code, out, err = frazil("run", "--once", agent="http://127.0.0.1:9")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "no agent answers (http://127.0.0.1:9: Connection refused)" in err


def test_an_agent_that_is_not_ready_is_told(frazil, world):
    world.refuse = lambda _path: (503, '{"error": "no session"}')
    code, _out, err = frazil("status")
    assert code == 1
    assert "HTTP 503 no session" in err


def test_another_servers_port_is_told(frazil, world):
    world.refuse = lambda _path: (200, "<html>")
    code, _out, err = frazil("status")
    assert code == 1
    assert "does not answer like an agent" in err


def test_an_address_that_is_none_is_told(frazil):
    code, _out, err = frazil("status", agent="localhost:9094")
    assert code == 1
    assert "is not an address like" in err


def test_a_topic_that_does_not_exist_is_told(frazil):
    code, _out, err = frazil("verify", "--topic", "odrers")
    assert code == 1
    assert "no topic matches 'odrers' (topics: orders)" in err


def test_a_topic_that_was_not_exported_cannot_be_verified(frazil):
    code, _out, err = frazil("verify", "--topic", "orders")
    assert code == 1
    assert "has not been exported yet" in err


def test_an_unknown_catalog_is_told(frazil):
    code, _out, err = frazil("run", "--once", "--set", "catalog.type=hadoop")
    assert code == 1
    assert "cannot open the Iceberg catalog" in err


def test_an_unreachable_catalog_is_told(frazil):
    sets = ["--set", "catalog.type=rest", "--set", "catalog.uri=http://127.0.0.1:9/"]
    code, _out, err = frazil("run", "--once", *sets)
    assert code == 1
    assert "cannot open the Iceberg catalog" in err
    assert err.count("\n") == 1


def test_an_unreadable_store_is_told(frazil, world, tmp_path):
    world.store_url = f"file://{tmp_path}/elsewhere"
    code, _out, err = frazil("run", "--once")
    assert code == 1
    assert "cannot read chunk" in err


def test_a_data_folder_that_cannot_be_made_is_told(frazil, tmp_path):
    (tmp_path / "data").write_text("a file")
    code, _out, err = frazil("run", "--once")
    assert code == 1
    assert "cannot create the warehouse folder" in err


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


def test_a_pattern_that_is_none_is_told(frazil):
    code, _out, err = frazil("run", "--once", "--topics", "(")
    assert code == 2
    assert "is no regular expression" in err


def test_a_run_that_is_not_once_is_wrong_use(frazil):
    with pytest.raises(SystemExit) as caught:
        frazil("run")
    assert caught.value.code == 2


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
