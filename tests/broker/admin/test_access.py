"""Who may ask the admin listener: by its address, a token, and roles."""

import argparse
import asyncio
import json
import logging
from pathlib import Path

import pytest

from broker.admin.access import TOKEN_PRINCIPAL, Role, access_of
from broker.admin.listener import ROUTES
from broker.agent import AgentError
from broker.calls.requester import ANONYMOUS
from broker.cli.admin_client import AgentPlace, ask
from broker.cli.arguments import add_agent, place_of
from broker.cli.command_result import ToolError
from broker.config.values import SettingsError
from broker.console import pages, record_pages, record_producing
from iceberg_export.errors import AgentError as RefusedError
from iceberg_export.plan.agent_client import AgentClient
from tests.broker.agents import serving
from tests.kit.sockets import settings_of

TOKEN = "a-token-of-some-length"
HOLDERS = {
    "User:m": {Role.METRICS},
    "User:e": {Role.EXPORTER},
    "User:v": {Role.VIEWER},
    "User:r": {Role.VIEWER, Role.READER},
    "User:o": {*Role} - {Role.ANYBODY},
    TOKEN_PRINCIPAL: {*Role} - {Role.ANYBODY},
    "User:other": set(),
}
"""Who may do what of that which not everybody may."""
ROLES = (
    "http.roles.metrics=User:m",
    "http.roles.exporter=User:e",
    "http.roles.viewer=User:v",
    "http.roles.reader=User:r",
    "http.roles.operator=User:o",
    f"http.token={TOKEN}",
)
SOMEBODY = ("listener.name.http.sasl.enabled.mechanisms=SCRAM-SHA-512",)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "localhost", "[::1]"])
def test_a_listener_on_loopback_that_names_nobody_serves_this_machine(host: str) -> None:
    access = access_of(settings_of(f"http={host}:0"))
    for role in Role:
        assert access.is_open(role)
        assert access.objection(role, ANONYMOUS) is None
    assert not access.is_shut


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "", "10.0.0.1", "agents.example", "*"])
def test_a_listener_that_others_reach_and_that_names_nobody_answers_health_and_metrics(
    host: str,
) -> None:
    access = access_of(settings_of(f"http={host}:0"))
    assert access.is_shut
    for role in (Role.EXPORTER, Role.OPERATOR):
        objection = access.objection(role, ANONYMOUS)
        assert objection is not None
        assert objection[0] == 403
        assert "http.token" in objection[1]
    assert access.is_open(Role.ANYBODY)
    assert access.is_open(Role.METRICS)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_listener_with_a_token_wants_to_hear_it_on_loopback_as_well(host: str) -> None:
    access = access_of(settings_of(f"http={host}:0", f"http.token={TOKEN}"))
    for role in (Role.EXPORTER, Role.OPERATOR):
        objection = access.objection(role, ANONYMOUS)
        assert objection is not None
        assert objection[0] == 401
        assert access.objection(role, TOKEN_PRINCIPAL) is None
    assert access.is_open(Role.METRICS), "as before there were roles"


@pytest.mark.parametrize("principal", HOLDERS)
@pytest.mark.parametrize("role", [each for each in Role if each is not Role.ANYBODY])
def test_who_has_a_role_may_and_others_are_told_what_is_missing(role: Role, principal: str) -> None:
    access = access_of(settings_of("http=0.0.0.0:0", *ROLES, *SOMEBODY))
    objection = access.objection(role, principal)
    if role in HOLDERS[principal]:
        assert objection is None
    else:
        assert objection is not None
        assert (objection[0], f"http.roles.{role.value}" in objection[1]) == (403, True)
    told = access.objection(role, ANONYMOUS)
    assert told is not None
    assert told[0] == 401
    assert access.objection(Role.ANYBODY, ANONYMOUS) is None


def test_a_users_principal_is_never_that_of_the_token() -> None:
    access = access_of(settings_of(f"http.token={TOKEN}"))
    assert access.objection(Role.OPERATOR, f"User:{TOKEN_PRINCIPAL}") is not None


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
    assert TOKEN not in repr(access_of(settings))


@pytest.mark.real_loop
async def test_every_endpoint_lets_in_who_has_its_role_and_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "frazil.audit")
    said = {ANONYMOUS: None, TOKEN_PRINCIPAL: TOKEN}
    for principal in set(HOLDERS) - {TOKEN_PRINCIPAL}:
        said[principal] = f"this-is-the-token-of-{principal.removeprefix('User:')}"
        (tmp_path / principal.removeprefix("User:")).write_text(said[principal])
    files = ",".join(f"{file.name}:{file}" for file in tmp_path.iterdir())
    async with serving(None, *ROLES, f"http.tokens={files}") as running:
        for route in (*ROUTES, *pages.ROUTES, *record_pages.ROUTES, *record_producing.ROUTES):
            path = route.path.format(job="snapshot", name="n")
            for principal, token in said.items():
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                status, body = await running.http(route.method, path, headers=headers)
                may = route.need is Role.ANYBODY or route.need in HOLDERS.get(principal, ())
                refused = 401 if principal == ANONYMOUS else 403
                assert (status not in (401, 403)) if may else status == refused, (path, principal)
                assert may or body["error"]
                assert may or body.get("code") == ("login-failed" if status == 401 else None)
    told = [json.loads(each.message) for each in caplog.records if each.name == "frazil.audit"]
    assert {each["event"] for each in told} == {"refused", "change"}
    assert {each["principal"] for each in told if each["event"] == "change"} == {
        "User:o",
        TOKEN_PRINCIPAL,
    }
    assert ANONYMOUS not in {each["principal"] for each in told}


@pytest.mark.real_loop
@pytest.mark.parametrize(
    "said",
    [
        "",
        TOKEN,
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        "Bearer é",
    ],
)
async def test_what_is_not_the_token_is_answered_401_and_health_does_not_care(said: str) -> None:
    quick = "connection.failed.authentication.delay.ms=0"
    async with serving(None, f"http.token={TOKEN}", quick) as running:
        headers = {"Authorization": said}
        status, body = await running.http("GET", "/jobs", headers=headers)
        assert (status, "http.token" in body["error"]) == (401, True)
        for path in ("/health/ready", "/metrics"):
            assert (await running.http("GET", path, headers=headers))[0] == 200
        for path in ("/nowhere", "/export/pin"):
            assert (await running.http("GET", path, headers=headers))[0] == 401


@pytest.mark.real_loop
async def test_a_token_that_changes_in_its_file_counts_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    quick = "connection.failed.authentication.delay.ms=0"
    async with serving(None, f"http.token.file={file}", quick) as running:

        async def status_of(token: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return (await running.http("GET", "/jobs", headers=headers))[0]

        assert await status_of(TOKEN) == 200
        file.write_text("another-token-than-that")
        running.agent._http._tokens["http"].look()
        assert await status_of(TOKEN) == 401
        assert await status_of("another-token-than-that") == 200


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
@pytest.mark.parametrize("text", ["", "\n", "short", "with spaces in the middle of it", "é" * 20])
async def test_a_file_without_a_usable_token_is_refused_and_not_quoted(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(AgentError, match=r"http\.token\.file: ") as refused:
        async with serving(None, f"http.token.file={file}"):
            pass
    assert not text.strip() or text not in str(refused.value)


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
