"""Who may ask the admin listener: by its address and its token."""

import argparse
import asyncio
from pathlib import Path

import pytest

from broker.admin.access import FOR_ALL, access_of
from broker.admin.listener import make_app
from broker.agent import AgentError
from broker.cli.admin_client import AgentPlace, ask
from broker.cli.arguments import add_agent, place_of
from broker.cli.command_result import ToolError
from broker.config.settings import SettingsError
from iceberg_export.errors import AgentError as RefusedError
from iceberg_export.plan.agent_client import AgentClient
from tests.broker.agents import serving
from tests.kit.sockets import settings_of

TOKEN = "a-token-of-some-length"


def no_file(file: str) -> str:
    raise AssertionError(file)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "localhost", "[::1]"])
def test_a_listener_on_loopback_without_a_token_serves_this_machine(host: str) -> None:
    access = access_of(settings_of(f"http={host}:0"), no_file)
    assert access.objection("/export/pin", "") is None
    assert not access.is_shut


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "", "10.0.0.1", "agents.example", "*"])
def test_a_listener_that_others_reach_without_a_token_answers_health_and_metrics(host: str) -> None:
    access = access_of(settings_of(f"http={host}:0"), no_file)
    assert access.is_shut
    for path in ("/log", "/jobs/snapshot/run", "/export/progress", "/nowhere"):
        objection = access.objection(path, f"Bearer {TOKEN}")
        assert objection is not None
        assert objection[0] == 403
        assert "http.token" in objection[1]
    assert [access.objection(path, "") for path in sorted(FOR_ALL)] == [None] * 3


@pytest.mark.parametrize(
    "said",
    [
        "",
        TOKEN,
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        "Bearer é\udce9",
    ],
)
def test_a_listener_with_a_token_wants_to_hear_it_on_loopback_as_well(said: str) -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        access = access_of(settings_of(f"http={host}:0", f"http.token={TOKEN}"), no_file)
        objection = access.objection("/jobs", said)
        assert objection is not None
        assert objection[0] == 401
        assert access.objection("/jobs", f"Bearer {TOKEN}") is None
        assert access.objection("/health/ready", said) is None


def test_a_token_comes_from_a_file_and_line_ends_do_not_count() -> None:
    settings = settings_of("http.token.file=/run/secrets/token")
    assert (
        access_of(settings, lambda file: {"/run/secrets/token": f"{TOKEN}\n"}[file]).token == TOKEN
    )


@pytest.mark.parametrize("text", ["", "\n", "short", "with spaces in the middle of it", "é" * 20])
def test_a_file_without_a_usable_token_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(SettingsError, match=r"http\.token\.file: /token") as refused:
        access_of(settings_of("http.token.file=/token"), lambda _file: text)
    assert not text.strip() or text not in str(refused.value)


@pytest.mark.parametrize(
    "flags", [("http.token=short",), (f"http.token={TOKEN}", "http.token.file=/a")]
)
def test_tokens_that_cannot_be_are_refused_and_not_quoted(flags: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match=r"http\.token") as refused:
        settings_of(*flags)
    assert "short" not in str(refused.value)
    assert TOKEN not in str(refused.value)


def test_a_token_is_not_shown() -> None:
    settings = settings_of(f"http.token={TOKEN}")
    assert TOKEN not in repr(settings)
    assert TOKEN not in repr(access_of(settings, no_file))


@pytest.mark.real_loop
async def test_every_endpoint_but_health_and_metrics_is_refused_without_the_token() -> None:
    async with serving(None, f"http.token={TOKEN}") as running:
        for route in make_app(running.agent._view).router.routes():
            if route.method == "HEAD":
                continue
            assert route.resource is not None
            path = route.resource.canonical.format(job="snapshot", name="n")
            status, body = await running.http(route.method, path)
            if path in FOR_ALL:
                assert status == 200
            else:
                assert (status, "http.token" in body["error"]) == (401, True), path
        said = {"Authorization": f"Bearer {TOKEN}"}
        assert (await running.http("GET", "/jobs", headers=said))[0] == 200


@pytest.mark.real_loop
async def test_an_agent_that_others_reach_without_a_token_says_so_at_its_start(caplog) -> None:
    async with serving(None, "http=0.0.0.0:0") as running:
        assert [r.message for r in caplog.records if "http.token" in r.message]
        assert (await running.http("GET", "/metrics"))[0] == 200
        assert (await running.http("POST", "/jobs/snapshot/run"))[0] == 403


@pytest.mark.real_loop
async def test_an_agent_whose_token_file_is_missing_does_not_start() -> None:
    with pytest.raises(AgentError, match=r"http\.token\.file: cannot read /nowhere/token"):
        async with serving(None, "http.token.file=/nowhere/token"):
            pass


@pytest.mark.real_loop
async def test_tools_say_the_token_and_tell_what_to_do_without_it() -> None:
    async with serving(None, f"http.token={TOKEN}") as running:
        url = f"http://127.0.0.1:{running.agent.listening()['http'][1]}"
        view = await asyncio.to_thread(ask, AgentPlace(url, TOKEN), "/jobs")
        assert view["jobs"]
        with pytest.raises(ToolError, match="--token-file"):
            await asyncio.to_thread(ask, AgentPlace(url), "/jobs")


@pytest.mark.parametrize("how", ["--token-file", "FRAZIL_HTTP_TOKEN", "FRAZIL_HTTP_TOKEN_FILE"])
def test_tools_take_the_token_from_a_file_or_the_environment(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    parser = argparse.ArgumentParser()
    add_agent(parser)
    flags = ["--token-file", str(file)] if how == "--token-file" else []
    monkeypatch.setenv("FRAZIL_HTTP_TOKEN", "another-token-than-that" if flags else "")
    if not flags:
        monkeypatch.setenv(how, TOKEN if how.endswith("TOKEN") else str(file))
    assert place_of(parser.parse_args(flags)) == AgentPlace("http://127.0.0.1:9094", TOKEN)


@pytest.mark.real_loop
@pytest.mark.parametrize("token", [TOKEN, None])
async def test_the_exporter_is_heard_with_the_token_alone(token: str | None) -> None:
    async with serving(None, f"http.token={TOKEN}") as running:
        url = f"http://127.0.0.1:{running.agent.listening()['http'][1]}"
        client = AgentClient(
            [url], timeout_ms=5_000, sleep=lambda _seconds: None, token=lambda: token
        )
        if token is None:
            with pytest.raises(RefusedError, match=r"agent\.token"):
                await asyncio.to_thread(client.topics)
        else:
            assert (await asyncio.to_thread(client.topics)).topics == ()
