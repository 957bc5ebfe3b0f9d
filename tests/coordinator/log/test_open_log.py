"""The `log` setting: which adapter it names, and mistakes in it."""

from pathlib import Path

import pytest

from coordinator.log.etcd import EtcdLog
from coordinator.log.memory import MemoryLog
from coordinator.log.open_log import LogOptions, open_log
from coordinator.log.sqlite import SqliteLog

NONE = LogOptions()


@pytest.mark.parametrize(
    ("url", "adapter"),
    [
        ("etcd://one:2379,two:2379,three/frazil", EtcdLog),
        ("etcds://one", EtcdLog),
        ("sqlite:///somewhere/log.db", SqliteLog),
        ("sqlite://./log.db", SqliteLog),
        ("memory://", MemoryLog),
    ],
)
def test_url_names_an_adapter(url: str, adapter: type) -> None:
    assert isinstance(open_log(url, NONE, "c"), adapter)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("etcd://", "no address"),
        ("etcd://one:two", "no address"),
        ("etcd://one:0", "no address"),
        ("etcd://user:secret@one:2379", "only scheme"),
        ("http://one:2379", "none of"),
        ("log.db", "none of"),
        ("sqlite://", "names no file"),
        ("sqlite://relative/log.db", "names no file"),
        ("sqlite:///log.db?mode=ro", "only scheme"),
    ],
)
def test_url_with_a_mistake_is_refused_with_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        open_log(url, NONE, "c")


def test_options_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.touch()
    with pytest.raises(ValueError, match=r"log\.user"):
        open_log("etcd://one", LogOptions(password="secret"), "c")
    with pytest.raises(ValueError, match=r"log\.key"):
        open_log("etcd://one", LogOptions(cert_file=pem), "c")
    with pytest.raises(ValueError, match=r"log\.ca: .* cannot be read"):
        open_log("etcd://one", LogOptions(ca_file=tmp_path / "none"), "c")
    with pytest.raises(ValueError, match="cluster id"):
        open_log("etcd://one", NONE, "a/b")


@pytest.mark.real_loop
async def test_sqlite_url_names_the_file(tmp_path: Path) -> None:
    log = open_log(f"sqlite://{tmp_path}/log.db", NONE, "c")
    await log.head()
    await log.aclose()
    assert (tmp_path / "log.db").exists()


@pytest.mark.parametrize("compact", [True, False])
def test_setting_says_whether_etcds_history_is_compacted(compact: bool) -> None:
    log = open_log("etcd://h", LogOptions(compact=compact), "c")
    assert isinstance(log, EtcdLog)
    assert log._cutter._compact is compact
