"""Credentials of the store that change while it is open: keys in a file, and a pod's identity."""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from protocol.fault_codes import FaultCode
from storage.stores import instance_metadata, s3, s3_credentials, s3_session
from storage.stores.object_store import StoreRefusedError, StoreUnavailableError
from storage.stores.s3 import S3Address, S3Store
from tests.storage.stores.fake_s3 import HANG_UP, Answer, FakeS3, Request, error

pytestmark = pytest.mark.real_loop

LISTED = Answer(200, b"<ListBucketResult></ListBucketResult>")
ROLE = "AssumeRoleWithWebIdentity"


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """AWS's tools look nowhere but into this folder."""
    monkeypatch.setattr(s3, "RETRIES_MAX", 0)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


@contextlib.asynccontextmanager
async def found(
    answer: Callable[[Request], Answer],
) -> AsyncIterator[tuple[S3Store, list[Request], FakeS3]]:
    """A store without keys of its own, on a server that answers so, and the requests it got."""
    async with (
        FakeS3(answer) as server,
        aclosing(S3Store(S3Address("bucket", endpoint=server.url))) as store,
    ):
        yield store, server.requests, server


def keys_of(requests: list[Request]) -> list[str]:
    """The access keys by which they were signed."""
    signed = [each.headers["authorization"] for each in requests if "authorization" in each.headers]
    return [re.search(r"Credential=(\w+)/", each)[1] for each in signed]


def write(folder: Path, key: str) -> None:
    text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"
    (folder / "credentials").write_text(text)


async def test_keys_in_a_file_are_followed_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_credentials, "LOOK_S", 0.0)
    write(tmp_path, "first")
    async with found(lambda request: LISTED if "list-type" in request.path else Answer()) as (
        store,
        requests,
        _,
    ):
        for key in ("first", "second", "third"):
            write(tmp_path, key)
            requests.clear()
            await store.get("a")
            await store.put_new("b", [b"x"])
            await store.list_after("", "")
            assert keys_of(requests) == [key] * 3


@pytest.mark.parametrize("broken", ["", "[default]\naws_access_key_id = half\n", "no file of keys"])
async def test_a_file_that_has_no_keys_any_more_changes_nothing(
    broken: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(s3_credentials, "LOOK_S", 0.0)
    write(tmp_path, "first")
    async with found(lambda _: Answer()) as (store, requests, _):
        await store.get("a")
        (tmp_path / "credentials").write_text(broken)
        with caplog.at_level(logging.ERROR):
            for _ in range(3):
                await store.get("a")
        assert keys_of(requests) == ["first"] * 4
        assert caplog.text.count("stay as they were") == 1


async def test_a_file_is_not_looked_at_with_every_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_credentials, "LOOK_S", 3600.0)
    write(tmp_path, "first")
    async with found(lambda _: Answer()) as (store, requests, _):
        await store.get("a")
        write(tmp_path, "second")
        await store.get("a")
        assert keys_of(requests) == ["first"] * 2


def assumed(request: Request) -> Answer:
    """What STS gives for a token: a key that is called like it, for less than a client is content with."""
    (token,) = parse_qs(request.body.decode())["WebIdentityToken"]
    ends = (datetime.now(UTC) + timedelta(seconds=200)).strftime("%Y-%m-%dT%H:%M:%SZ")
    given = (
        f"<AccessKeyId>{token}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>"
        f"<SessionToken>session</SessionToken><Expiration>{ends}</Expiration>"
    )
    body = (
        f'<{ROLE}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{ROLE}Result>'
        f"<Credentials>{given}</Credentials></{ROLE}Result></{ROLE}Response>"
    )
    return Answer(200, body.encode(), (("content-type", "text/xml"),))


async def test_a_pods_identity_is_shown_anew_before_its_credentials_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token that Kubernetes writes into a file, and writes again: each renewal reads it."""
    token = tmp_path / "token"
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::000000000000:role/frazil")
    async with found(
        lambda request: assumed(request) if ROLE.encode() in request.body else LISTED
    ) as (store, requests, server):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        for identity in ("morning", "evening"):
            token.write_text(identity)
            # obstore goes on with what it was given less than 100 ms ago.
            async with asyncio.timeout(30):
                while set(keys_of(requests)) != {identity}:
                    requests.clear()
                    await store.get("a")
                    await store.list_after("", "")


async def test_a_service_of_credentials_that_does_not_answer_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a node that has just started, the pod may be there before it."""
    ends = (datetime.now(UTC) + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
    given = {"AccessKeyId": "late", "SecretAccessKey": "x", "Token": "y", "Expiration": ends}
    there = Answer(200, json.dumps(given).encode())
    is_there = False

    def answer(request: Request) -> Answer:
        if request.path != "/keys":
            return LISTED
        return there if is_there else error(500, "NotYet")

    async with found(answer) as (store, requests, server):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.url}/keys")
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="retrieving credentials"):
                await store.get("a")
        is_there = True
        await store.get("a")
        await store.list_after("", "")
        assert keys_of(requests) == ["late"] * 2


TOKEN = "/latest/api/token"
ROLES = "/latest/meta-data/iam/security-credentials/"


def of_instance(request: Request) -> Answer:
    """What a machine's metadata service says that has a role."""
    ends = (datetime.now(UTC) + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
    given = {"AccessKeyId": "role", "SecretAccessKey": "x", "Token": "y", "Expiration": ends}
    bodies = {TOKEN: "token", ROLES: "frazil", f"{ROLES}frazil": json.dumps(given)}
    return Answer(200, bodies[request.path].encode())


@contextlib.asynccontextmanager
async def on_instance(
    metadata: Callable[[Request], Answer], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[S3Store, list[Request]]]:
    """A store on a machine whose metadata service answers so."""

    def answer(request: Request) -> Answer:
        return metadata(request) if request.path.startswith("/latest/") else LISTED

    async with found(answer) as (store, requests, server):
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{server.url}/")
        yield store, requests


async def test_a_machine_whose_metadata_service_is_silent_at_first_gets_its_credentials_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silence: Answer | None = None

    def answer(request: Request) -> Answer:
        return silence or of_instance(request)

    async with on_instance(answer, monkeypatch) as (store, requests):
        for failure in (HANG_UP, error(503, "NotYet")):
            silence = failure
            with pytest.raises(StoreUnavailableError, match=r"metadata service at .* does not"):
                await store.get("a")
        silence = None
        await store.get("a")
        assert keys_of(requests) == ["role"]


async def test_a_metadata_service_that_stays_silent_is_refused_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "CREDENTIALS_SECONDS_MAX", 0.2)
    async with on_instance(lambda _: HANG_UP, monkeypatch) as (store, _):
        with pytest.raises(StoreUnavailableError):
            await store.get("a")
        await asyncio.sleep(0.2)
        with pytest.raises(StoreRefusedError, match="set access key and secret key") as refused:
            await store.get("a")
        assert refused.value.fault is FaultCode.STORE_DENIED


async def test_a_metadata_service_that_has_no_role_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with on_instance(lambda _: error(404, "NotFound"), monkeypatch) as (store, _):
        with pytest.raises(StoreRefusedError, match="no credentials were found"):
            await store.get("a")


@contextlib.asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """The URL of a server that takes connections and says nothing."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(
        lambda _reader, writer: writers.append(writer), "127.0.0.1", 0
    )
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for writer in writers:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_who_is_silent_is_told_of_before_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(s3, "TELL_SECONDS", 0.05)
    monkeypatch.setattr(instance_metadata, "ANSWER_SECONDS_MAX", 0.1)
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    async with silent() as url, aclosing(S3Store(S3Address("bucket", endpoint=url))) as store:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        with pytest.raises(StoreUnavailableError, match="metadata service"):
            await store.get("a")
        assert caplog.text.count("waiting for the credentials of bucket bucket") == 1


async def test_whoever_else_has_the_credentials_and_is_silent_is_not_waited_for_for_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_session, "FIND_SECONDS_MAX", 0.3)
    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::000000000000:role/frazil")
    async with silent() as url, aclosing(S3Store(S3Address("bucket", endpoint=url))) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        async with asyncio.timeout(20):
            for call in (store.get("a"), store.list_after("a", ""), store.delete(["a"])):
                with pytest.raises(StoreUnavailableError, match="did not answer within"):
                    await call
