"""Sentences of commands end in the code of what somebody must mend, and `frazil explain` says what it is."""

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from broker.cli import doctor, main
from broker.environment import now_ms
from protocol.fault_codes import FAULTS, FaultCode
from storage.formats.cluster_identity import ClusterIdentity, claim_store
from storage.stores.disk import DiskStore


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("FRAZIL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> int:
    try:
        return main.main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


def doctors(capsys: pytest.CaptureFixture[str], **settings: str) -> list[str]:
    """What doctor says is wrong, with a store and a log in this folder."""
    here = Path.cwd()
    given = {"store": f"file://{here}/objects", "log": f"sqlite://{here}/log.db"}
    given |= {"listen": "127.0.0.1:0", "http": "off"} | settings
    words = [word for item in given.items() for word in ("--set", "=".join(item))]
    code = run("doctor", *words)
    bad = [line for line in capsys.readouterr().out.splitlines() if line.startswith("BAD")]
    assert code == bool(bad)
    return bad


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        yield door.getsockname()[1]


@pytest.mark.fault_code("unknown-setting", "wrong-value", "data-folder-denied")
@pytest.mark.fault_code("cluster-unreachable", "tls-failed")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("dev --set num.partition=3", "unknown-setting"),
        ("dev --set kafka.num.partition=3", "unknown-setting"),
        ("dev --set num.partitions=many", "wrong-value"),
        ("serve --set store=file:///s", "wrong-value"),
        ("dev --data file", "data-folder-denied"),
        ("dev --data file/below", "data-folder-denied"),
        ("topic list --bootstrap 127.0.0.1:1", "cluster-unreachable"),
        ("job list --agent http://127.0.0.1:1", "cluster-unreachable"),
        ("topic list --command-config tls.properties", "tls-failed"),
    ],
)
def test_a_sentence_ends_in_its_code(
    words: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").touch()
    Path("tls.properties").write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=none.pem\n"
    )
    assert run(*words.split()) in (main.FAILED, main.MISUSED)
    told = capsys.readouterr().err
    assert told.endswith(f" [{code}]\n")
    assert told.count(f"[{code}]") == 1


def test_each_mistake_in_settings_has_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dev", "--set", "zonk=1", "--set", "num.partitions=many") == main.MISUSED
    told = capsys.readouterr().err.splitlines()
    assert sorted(line.rpartition(" ")[2] for line in told) == [
        "[unknown-setting]",
        "[wrong-value]",
    ]


def test_what_is_wrong_use_has_no_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("topic") == main.FAILED
    assert run("topic", "paint") == main.MISUSED
    assert not any(f"[{code}]" in capsys.readouterr().err for code in FaultCode)


def test_doctor_names_a_port_that_is_taken_and_no_other_trouble_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with taken_port() as port:
        (line,) = doctors(capsys, listen=f"127.0.0.1:{port}")
        assert line.endswith("(listen) [port-taken]")
    (line,) = doctors(capsys, listen="192.0.2.1:9092")
    assert line.endswith("(listen) [wrong-value]")


def test_doctor_names_a_store_whose_folder_is_a_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("file").touch()
    (line,) = doctors(capsys, store=f"file://{Path.cwd()}/file")
    assert line.startswith("BAD  store")
    assert line.endswith("[data-folder-denied]")


@pytest.mark.fault_code("other-cluster")
def test_doctor_names_the_store_of_another_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    async def claim() -> None:
        async with aclosing(DiskStore(Path.cwd() / "objects")) as store:
            await claim_store(store, ClusterIdentity("theirs", 1))

    asyncio.run(claim())
    (line,) = doctors(capsys)
    assert "it belongs to cluster 'theirs'" in line
    assert line.endswith("[other-cluster]")


@pytest.mark.fault_code("clock-skew")
def test_doctor_names_a_clock_that_is_not_the_stores(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "now_ms", lambda: now_ms() + 3_600_000)
    (line,) = doctors(capsys)
    assert line.endswith("ahead of the store's: set up NTP [clock-skew]")


def test_a_code_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "disk-full") == 0
    told = capsys.readouterr().out
    assert told.startswith("disk-full\n\nThe disk, or this user's quota of it, has no room")
    assert "KAFKA_STORAGE_ERROR" in told
    assert "\n1. See what is full: `df -h FOLDER`" in told


def test_all_codes_are_listed_and_as_json_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*FaultCode]
    assert run("explain", "--json") == 0
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["code"] for entry in entries] == [*FaultCode]
    for entry in entries:
        fault = FAULTS[FaultCode(entry["code"])]
        assert entry["steps"] == [*fault.steps]
        assert (entry["means"], entry["clients"]) == (fault.means, fault.clients)


def test_a_code_that_is_none_is_wrong_use_and_the_others_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("explain", "disk-empty") == main.MISUSED
    assert "choose from port-taken, " in capsys.readouterr().err.replace("'", "")
