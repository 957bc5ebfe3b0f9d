"""etcd's certificates and password in files that change: what is taken, and that nothing fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from coordinator.log import etcd_client
from coordinator.log.etcd import EtcdLog
from coordinator.log.etcd_client import EtcdOptions
from coordinator.log.etcd_files import EtcdFiles, EtcdPaths
from coordinator.log.open_log import LogOptions, open_log
from protocol.types import Position
from tests.coordinator.log.test_etcd import enable_login, gateway, opened
from tests.kit.certificates import Authority
from tests.parts.process import free_port
from tests.parts.servers import EtcdServer, http_ok

GIVEN = EtcdOptions(user="root")


def files(folder: Path) -> EtcdFiles:
    paths = EtcdPaths(
        password=folder / "password",
        ca=folder / "ca.pem",
        cert=folder / "cert.pem",
        key=folder / "key.pem",
    )
    return EtcdFiles(GIVEN, paths)


def write(folder: Path, authority: Authority, *, password: str = "secret") -> None:
    signed = authority.sign("client")
    (folder / "password").write_text(f"{password}\n")
    (folder / "ca.pem").write_text(authority.pem)
    (folder / "cert.pem").write_text(signed.certificate_pem)
    (folder / "key.pem").write_text(signed.key_pem())


# What is taken.


def test_what_has_changed_is_taken_once(tmp_path: Path) -> None:
    authority = Authority()
    write(tmp_path, authority)
    read = files(tmp_path)
    first = read.read()
    assert first.password == "secret"
    assert read.look() is None
    write(tmp_path, authority, password="other")
    taken = read.look()
    assert taken is not None
    assert taken.password == "other"
    assert taken.cert != first.cert
    assert read.look() is None


ANOTHERS = "another's key"
PEM = ("cert.pem", "key.pem", "ca.pem")
UNUSABLE = [
    *[(name, None) for name in (*PEM, "password")],
    *[(name, "") for name in (*PEM, "password")],
    *[(name, text) for name in PEM for text in ("nonsense", ANOTHERS)],
]


@pytest.mark.parametrize(("name", "text"), UNUSABLE)
def test_what_cannot_be_used_changes_nothing_and_is_told_once(
    name: str, text: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, Authority())
    read = files(tmp_path)
    read.read()
    if text is None:
        (tmp_path / name).unlink()
    else:
        key = Authority().sign("another").key_pem()
        (tmp_path / name).write_text(key if text is ANOTHERS else text)
    with caplog.at_level(logging.ERROR):
        assert [read.look() for _ in range(3)] == [None] * 3
    assert caplog.text.count("stay as they were") == 1
    write(tmp_path, Authority())
    assert read.look() is not None


def test_secrets_are_in_no_repr(tmp_path: Path) -> None:
    write(tmp_path, Authority(), password="hidden")
    options = files(tmp_path).read()
    assert "hidden" not in repr(options)
    assert "PRIVATE" not in repr(options)
    assert "hidden" not in repr(LogOptions(user="u", password="hidden"))


def test_a_password_is_given_once_and_with_a_user(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    both = LogOptions(user="root", password="secret", password_file=file)
    with pytest.raises(ValueError, match="both set"):
        open_log("etcd://one", both, "c")
    with pytest.raises(ValueError, match=r"log\.password\.file is set, log\.user is not"):
        open_log("etcd://one", LogOptions(password_file=file), "c")
    file.write_text("\n")
    with pytest.raises(ValueError, match=r"log\.password\.file: there is no password"):
        open_log("etcd://one", LogOptions(user="root", password_file=file), "c")


# What becomes of calls.

SESSION_S = 30


class SecuredEtcd(EtcdServer):
    """An etcd that speaks TLS, and only with whom one of its authorities has signed."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        signed = authority.sign("etcd")
        (folder / "etcd.pem").write_text(signed.certificate_pem)
        (folder / "etcd-key.pem").write_text(signed.key_pem())
        self.trusted = folder / "trusted.pem"
        self.metrics_port = free_port()
        super().__init__(
            folder,
            *("--cert-file", str(folder / "etcd.pem"), "--key-file", str(folder / "etcd-key.pem")),
            *("--client-cert-auth", "--trusted-ca-file", str(self.trusted)),
            *("--listen-metrics-urls", f"http://127.0.0.1:{self.metrics_port}"),
        )
        secured = self.url.replace("http:", "https:")
        self.child.argv = [secured if word == self.url else word for word in self.child.argv]

    def start(self) -> None:
        self.child.start(lambda: http_ok(self.metrics_port, "/health"))


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_client, "LOOK_S", 0.2)


@asynccontextmanager
async def at_work(log: EtcdLog) -> AsyncIterator[list[int]]:
    """Appends one entry after the other, with a reader beside it; the numbers that the reader has
    seen. Raises what either raised."""
    session = await opened(log)
    seen: list[int] = []
    done = asyncio.Event()

    async def append() -> None:
        n = 0
        while not done.is_set():
            n += 1
            await log.append(session, n, b"x")
            await asyncio.sleep(0.01)

    async def read() -> None:
        async with aclosing(log.tail(Position(0))) as batches:
            async for batch in batches:
                seen.extend(entry.n for entry in batch)

    async with asyncio.timeout(SESSION_S), asyncio.TaskGroup() as tasks:
        writer, reader = tasks.create_task(append()), tasks.create_task(read())
        yield seen
        done.set()
        await writer
        reader.cancel()
    assert seen == list(range(len(seen)))


async def more(seen: list[int], count: int = 40) -> None:
    """Wait until the reader has seen so many more."""
    wanted = len(seen) + count
    while len(seen) < wanted:
        await asyncio.sleep(0.02)


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """An etcd that a test may break."""
    server = EtcdServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.mark.integration
@pytest.mark.real_loop
async def test_etcd_may_have_the_new_password_before_the_file_has(
    own_etcd: EtcdServer, tmp_path: Path
) -> None:
    """Calls wait for it, up to their deadline. (`tests/faults/test_new_password.py`: the other order.)"""
    enable_login(own_etcd)
    file = tmp_path / "password"
    file.write_text("secret")
    options = LogOptions(user="root", password_file=file)
    log = open_log(f"etcd://{own_etcd.endpoints[0]}/t", options, "c")
    assert isinstance(log, EtcdLog)

    def change() -> None:
        login = {"name": "root", "password": "secret"}
        token = gateway(own_etcd, "auth/authenticate", login)["token"]
        gateway(own_etcd, "auth/user/changepw", {"name": "root", "password": "changed"}, token)

    async with aclosing(log), at_work(log) as seen:
        await more(seen)
        await asyncio.to_thread(change)
        await asyncio.sleep(0.7)
        file.write_text("changed")
        await more(seen)
        assert log._client._options.password == "changed"


@pytest.mark.integration
@pytest.mark.real_loop
async def test_certificates_change_while_entries_are_written_and_none_fails(tmp_path: Path) -> None:
    """From one authority to another; in the end etcd trusts only the new one."""
    old, new = Authority("old"), Authority("new")
    etcd = SecuredEtcd(tmp_path, old)
    etcd.trusted.write_text(old.pem + new.pem)
    write(tmp_path, old)
    etcd.start()
    try:
        options = LogOptions(
            ca_file=tmp_path / "ca.pem",
            cert_file=tmp_path / "cert.pem",
            key_file=tmp_path / "key.pem",
        )
        log = open_log(f"etcds://{etcd.endpoints[0]}/t", options, "c")
        assert isinstance(log, EtcdLog)
        async with aclosing(log):
            async with at_work(log) as seen:
                await more(seen)
                signed = new.sign("client")
                (tmp_path / "cert.pem").write_text(signed.certificate_pem)
                (tmp_path / "key.pem").write_text(signed.key_pem())
                while log._client._generation == 0:
                    await asyncio.sleep(0.05)
                await more(seen, 60)
                assert all(not member._old for member in log._client._members)
            await asyncio.to_thread(etcd.stop)
            etcd.trusted.write_text(new.pem)
            await asyncio.to_thread(etcd.start)
            assert await log.head() > 0
    finally:
        etcd.stop()
