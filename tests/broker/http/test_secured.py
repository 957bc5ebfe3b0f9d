"""HTTP listeners over TLS, on a whole agent: certificates that change, wrong ones, and clients'."""

import asyncio
import http.client
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from broker.cli import doctor
from broker.cli.admin_client import AgentPlace, ask
from broker.cli.command_result import ToolError
from broker.cli.main import main
from broker.config.settings import Settings
from broker.edge import tls_listener
from iceberg_export.errors import AgentError as NotAskedError
from iceberg_export.plan.agent_client import AgentClient
from iceberg_export.settings import DEFAULTS
from iceberg_export.tls_files import AGENT, REGISTRY, TlsFiles
from iceberg_export.typed.registry_client import RegistryClient
from tests.kit.certificates import Authority, Signed
from tests.kit.sockets import Place, Running, agent_of, settings_of
from tests.kit.tls import client_context

pytestmark = pytest.mark.real_loop

TOKEN = "a-token-of-some-length"


class Secured:
    """An agent whose HTTP listeners speak TLS, and the files it reads."""

    def __init__(self, running: Running, folder: Path, authority: Authority) -> None:
        self.running = running
        self.folder = folder
        self.authority = authority

    def port(self, name: str) -> int:
        return self.running.agent.listening()[name][1]

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port('http')}"

    async def get(
        self,
        path: str,
        *,
        name: str = "http",
        trusts: Authority | None = None,
        own: Signed | None = None,
        token: str | None = None,
    ) -> tuple[int, bytes]:
        """Status and body, as a client gets them over a connection of its own."""
        context = client_context(trusts or self.authority, own)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}

        def work() -> tuple[int, bytes]:
            port = self.port(name)
            connection = http.client.HTTPSConnection("localhost", port, timeout=10, context=context)
            try:
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
                return response.status, response.read()
            finally:
                connection.close()

        return await asyncio.to_thread(work)

    async def shows(self, signed: Signed) -> None:
        """Have the agent show this certificate from now on."""
        (self.folder / "agent.pem").write_text(signed.pem)
        for tls in self.running.agent._http._tls.values():
            await asyncio.to_thread(tls.look)


@asynccontextmanager
async def secured(folder: Path, *flags: str) -> AsyncIterator[Secured]:
    authority = Authority()
    (folder / "agent.pem").write_text(authority.sign().pem)
    (folder / "authority.pem").write_text(authority.pem)
    settings = (
        "http=https://127.0.0.1:0",
        "schema.registry.listeners=https://127.0.0.1:0",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / 'agent.pem'}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={folder / 'authority.pem'}",
        "connection.failed.authentication.delay.ms=0",
        "lease.ttl.ms=30000",
        "session.deadline.ms=25000",
        "stall.ms=30000",
    )
    async with opened(folder, authority, *settings, *flags) as found:
        yield found


@asynccontextmanager
async def opened(folder: Path, authority: Authority, *flags: str) -> AsyncIterator[Secured]:
    async with agent_of(Place(), *flags) as running:
        found = Secured(running, folder, authority)
        async with asyncio.timeout(30):
            await running.agent.serving()
        yield found


async def test_both_listeners_answer_over_tls_and_not_without(tmp_path: Path) -> None:
    async with secured(tmp_path) as agent:
        assert await agent.get("/health/live") == (200, b'{"live": true}')
        assert (await agent.get("/subjects", name="registry"))[1] == b"[]"
        reader, writer = await asyncio.open_connection("127.0.0.1", agent.port("http"))
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"live" not in await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert agent.running.agent.node.stats.handshakes_failed == {"not tls": 1}


async def test_a_new_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    async with secured(tmp_path) as agent:
        other = Authority("other")
        with pytest.raises(ssl.SSLCertVerificationError):
            await agent.get("/health/live", trusts=other)
        await agent.shows(other.sign())
        assert (await agent.get("/health/live", trusts=other))[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await agent.get("/health/live")
        (tmp_path / "agent.pem").write_text("broken")
        for tls in agent.running.agent._http._tls.values():
            assert not tls.look()
        assert (await agent.get("/health/live", trusts=other))[0] == 200


async def test_a_certificate_with_a_key_that_nobody_can_read_ends_no_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listener, "POLL_S", 0.05)
    async with secured(tmp_path) as agent:
        signed = agent.authority.sign()
        der = bytearray(signed.certificate.public_bytes(Encoding.DER))
        name = bytes.fromhex("06082a8648ce3d030107")  # Of the curve P-256.
        der[der.index(name) + len(name) - 1] = 0x77
        body = b64encode(der).decode()
        text = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
        (tmp_path / "agent.pem").write_text(signed.key_pem() + text)
        stats = agent.running.agent.node.stats
        async with asyncio.timeout(10):
            while stats.certificate_failures < 3:
                await asyncio.sleep(0.05)
        assert (await agent.get("/health/live"))[0] == 200


async def test_a_certificate_that_has_ended_is_refused_by_clients(tmp_path: Path) -> None:
    async with secured(tmp_path) as agent:
        await agent.shows(agent.authority.sign(days=-1, begun_days=9))
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            await agent.get("/health/live")


async def test_a_certificate_of_a_client_says_who_it_is(tmp_path: Path) -> None:
    async with secured(
        tmp_path,
        "listener.name.http.ssl.client.auth=requested",
        "listener.name.registry.ssl.client.auth=required",
        "http.roles.operator=User:ann",
        "ssl.principal.mapping.rules=RULE:^CN=([a-z]+).*$/$1/,DEFAULT",
    ) as agent:
        sign = agent.authority.sign
        assert (await agent.get("/jobs", own=sign("CN=ann,O=shop")))[0] == 200
        status, body = await agent.get("/jobs", own=sign("bob"))
        assert (status, "User:bob" in json.loads(body)["error"]) == (403, True)
        assert (await agent.get("/jobs"))[0] == 401
        assert (await agent.get("/health/ready"))[0] == 200, "probes show none"
        assert (await agent.get("/subjects", name="registry", own=sign("bob")))[0] == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await agent.get("/subjects", name="registry")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await agent.get("/jobs", own=Authority("other").sign("ann"))


async def test_tools_and_exporter_trust_whom_they_are_told_to(tmp_path: Path) -> None:
    async with secured(tmp_path, f"http.token={TOKEN}") as agent:
        place = AgentPlace(agent.url, TOKEN, client_context(agent.authority))
        assert (await asyncio.to_thread(ask, place, "/jobs"))["jobs"]
        with pytest.raises(ToolError, match="--ca-file"):
            await asyncio.to_thread(ask, AgentPlace(agent.url, TOKEN), "/jobs")

        file = tmp_path / "trusted.pem"
        file.write_text(Authority("other").pem)
        client = AgentClient(
            [agent.url],
            timeout_ms=5_000,
            sleep=lambda _seconds: None,
            token=lambda: TOKEN,
            context=TlsFiles(DEFAULTS | {"agent.ca": str(file)}, AGENT).context,
        )
        with pytest.raises(NotAskedError, match=r"agent\.ca"):
            await asyncio.to_thread(client.topics)
        file.write_text(agent.authority.pem)
        assert (await asyncio.to_thread(client.topics)).topics == ()


async def test_tools_and_exporter_show_certificates_where_those_are_required(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are their users, then: no token is needed."""
    async with secured(
        tmp_path,
        "listener.name.http.ssl.client.auth=required",
        "listener.name.registry.ssl.client.auth=required",
        "http.roles.operator=User:CN=ops",
        "http.roles.exporter=User:CN=exporter",
    ) as agent:
        (tmp_path / "ops.pem").write_text(agent.authority.sign("CN=ops").pem)
        exporter = agent.authority.sign("CN=exporter")
        (tmp_path / "own.pem").write_text(exporter.certificate_pem)
        (tmp_path / "own-key.pem").write_text(exporter.key_pem())

        def tool(*words: str) -> tuple[int, str]:
            ca = ("--ca-file", str(tmp_path / "authority.pem"))
            code = main(["job", "list", "--agent", agent.url, *ca, *words])
            said = capsys.readouterr()
            return code, said.out + said.err

        def asking(*own: str) -> AgentClient:
            files = [tmp_path / name for name in ("authority.pem", *own)]
            given = dict(zip(AGENT, map(str, files), strict=False))
            return AgentClient(
                [agent.url],
                timeout_ms=5_000,
                sleep=lambda _seconds: None,
                context=TlsFiles(DEFAULTS | given, AGENT).context,
            )

        code, said = await asyncio.to_thread(tool, "--cert-file", str(tmp_path / "ops.pem"))
        assert (code, "snapshot" in said) == (0, True), said
        code, said = await asyncio.to_thread(tool)
        assert (code, "--cert-file" in said) == (1, True), said
        code, said = await asyncio.to_thread(tool, "--cert-file", str(tmp_path / "own.pem"))
        assert (code, "cannot use the certificates in" in said) == (1, True), said

        own = asking("own.pem", "own-key.pem")
        assert (await asyncio.to_thread(own.topics)).topics == ()
        with pytest.raises(NotAskedError, match=r"agent\.cert"):
            await asyncio.to_thread(asking().topics)

        url = f"https://localhost:{agent.port('registry')}"
        files = [tmp_path / name for name in ("authority.pem", "own.pem", "own-key.pem")]
        given = dict(zip(REGISTRY, map(str, files), strict=True)) | {"schema.registry.url": url}
        registry = RegistryClient(DEFAULTS | given, told=str, sleep=lambda _seconds: None)
        assert await asyncio.to_thread(registry.by_id, 7) is None


async def test_the_doctor_knows_the_agent_by_the_certificate_of_its_settings(
    tmp_path: Path,
) -> None:
    async with secured(tmp_path, f"http.token={TOKEN}") as agent:

        def settings(keystore: Path) -> Settings:
            return settings_of(
                f"http=https://127.0.0.1:{agent.port('http')}",
                f"http.token={TOKEN}",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.location={keystore}",
            )

        own = settings(tmp_path / "agent.pem")
        assert await asyncio.to_thread(doctor._agent_runs, own)
        (found,) = await doctor._told(own)
        assert (found.what, found.bad) == ("objects", False)
        (tmp_path / "other.pem").write_text(Authority("other").sign().pem)
        assert not await asyncio.to_thread(doctor._agent_runs, settings(tmp_path / "other.pem"))


async def test_connections_whose_handshake_does_not_end_make_room_for_others(
    tmp_path: Path,
) -> None:
    async with secured(tmp_path, "http.connections.max=3") as agent:
        silent = [await asyncio.open_connection("127.0.0.1", agent.port("http")) for _ in range(5)]
        assert (await agent.get("/health/live"))[0] == 200
        for _, writer in silent:
            writer.close()
