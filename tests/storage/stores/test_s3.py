"""The S3 adapter against a server that misbehaves as told, and against a real one."""

import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.credentials import AioRefreshableCredentials
from aiobotocore.session import AioSession

from protocol.fault_codes import FaultCode
from storage.stores import s3
from storage.stores.object_store import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)
from storage.stores.s3 import S3Address, S3Store
from tests.parts import install
from tests.parts.tcp_proxy import Proxy
from tests.parts.wall_clock import WallClock
from tests.storage.stores.fake_s3 import HANG_UP, Answer, Request, against, error, fake

pytestmark = pytest.mark.real_loop


def calls(store: S3Store) -> list[Coroutine[Any, Any, object]]:
    """One of each kind, but for deletions."""
    return [
        store.put_new("a", [b"x"]),
        store.get("a"),
        store.get_range("a", 0, 1),
        store.list_after("", ""),
    ]


async def each_raises(
    kind: type[Exception], match: str, *calls: Coroutine[Any, Any, object]
) -> None:
    for call in calls:
        with pytest.raises(kind, match=match or None):
            await call


@pytest.fixture(autouse=True)
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own retries only cost time here; one test looks at them."""
    monkeypatch.setattr(s3, "RETRIES_MAX", 0)


async def test_put_is_one_conditional_request_with_a_checksum_and_without_a_signed_payload() -> (
    None
):
    async with against(lambda _: Answer()) as (store, requests):
        await store.put_new("a/b", [b"one", memoryview(b"two")])
    (request,) = requests
    assert (request.method, request.path, request.body) == ("PUT", "/bucket/a/b", b"onetwo")
    assert request.headers["if-none-match"] == "*"
    assert request.headers["x-amz-checksum-crc64nvme"]
    assert request.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 429])
async def test_answers_that_may_pass_are_unavailable(status: int) -> None:
    async with against(lambda _: error(status, "SlowDown")) as (store, _):
        await each_raises(StoreUnavailableError, "told so", *calls(store), store.delete(["a"]))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (error(403, "SignatureDoesNotMatch"), "check the credentials"),
        (error(403, "RequestTimeTooSkewed"), "set up NTP"),
        (error(401, "Unauthorized"), "check the credentials"),
        (error(404, "NoSuchBucket"), "create the bucket"),
        (error(400, "InvalidBucketName"), "InvalidBucketName"),
        (error(405, "MethodNotAllowed"), "MethodNotAllowed"),
        (error(501, "NotImplemented"), "conditional writes"),
    ],
)
async def test_answers_that_repeating_will_not_change_are_refused(
    answer: Answer, sentence: str
) -> None:
    async with against(lambda _: answer) as (store, _):
        await each_raises(StoreRefusedError, sentence, *calls(store), store.delete(["a"]))


@pytest.mark.parametrize("code", ["ExpiredToken", "BadDigest", "XAmzContentChecksumMismatch"])
async def test_refusals_that_repeating_can_change_may_pass(code: str) -> None:
    async with against(lambda _: error(400, code)) as (store, _):
        with pytest.raises(StoreUnavailableError):
            await store.put_new("a", [b"x"])
        with pytest.raises(StoreUnavailableError):
            await store.list_after("", "")


async def test_only_reading_can_find_nothing() -> None:
    async with against(lambda _: error(404, "NoSuchKey")) as (store, _):
        with pytest.raises(StoreRefusedError):
            await store.put_new("a", [b"x"])
        with pytest.raises(ObjectNotFoundError):
            await store.get("a")
        with pytest.raises(ObjectNotFoundError):
            await store.get_range("a", 0, 1)


async def test_errors_name_the_place_and_no_secret() -> None:
    async with against(lambda _: error(403, "AccessDenied")) as (store, _):
        with pytest.raises(StoreRefusedError) as caught:
            await store.get("a")
        assert "bucket bucket at http://127.0.0.1" in str(caught.value)
        assert "hidden-one" not in str(caught.value)


async def test_server_that_hangs_up_is_unavailable() -> None:
    async with against(lambda _: HANG_UP) as (store, _):
        await each_raises(StoreUnavailableError, "", *calls(store))


async def test_port_where_nobody_listens_is_unavailable_and_says_so() -> None:
    async with aclosing(S3Store(fake("http://127.0.0.1:9"))) as store:
        put, *others = calls(store)
        await each_raises(StoreUnavailableError, "Connection refused", put)
        await each_raises(StoreUnavailableError, "", *others)


async def test_body_that_is_cut_off_is_unavailable_never_short() -> None:
    def answer(request: Request) -> Answer:
        ranged = "range" in request.headers
        headers = (("content-range", "bytes 0-9/10"),) if ranged else ()
        return Answer(206 if ranged else 200, b"0123456789", headers, cut=True)

    async with against(answer) as (store, _):
        with pytest.raises(StoreUnavailableError):
            await store.get("a")
        with pytest.raises(StoreUnavailableError):
            await store.get_range("a", 0, 10)


async def test_server_that_ignores_ranges_is_refused() -> None:
    async with against(lambda _: Answer(200, b"0123456789")) as (store, _):
        with pytest.raises(StoreRefusedError):
            await store.get_range("a", 3, 4)


def lost_answer(present: bytes) -> Callable[[Request], Answer]:
    """To PUT: the answer of the first is lost, then "it exists"; to GET: what is there."""
    puts = itertools.count()

    def answer(request: Request) -> Answer:
        if request.method == "GET":
            return Answer(200, present)
        return HANG_UP if next(puts) == 0 else error(412, "PreconditionFailed")

    return answer


async def test_put_after_a_lost_answer_succeeds_when_the_bytes_are_there() -> None:
    async with against(lost_answer(b"our bytes")) as (store, requests):
        with pytest.raises(StoreUnavailableError):
            await store.put_new("a", [b"our ", b"bytes"])
        await store.put_new("a", [b"our ", b"bytes"])
    assert [request.method for request in requests] == ["PUT", "PUT", "GET"]


async def test_put_after_a_lost_answer_fails_when_other_bytes_are_there() -> None:
    async with against(lost_answer(b"not ours!")) as (store, _):
        with pytest.raises(StoreUnavailableError):
            await store.put_new("a", [b"our bytes"])
        with pytest.raises(ObjectExistsError):
            await store.put_new("a", [b"our bytes"])


async def test_lost_answer_is_settled_within_one_call_where_the_client_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "RETRIES_MAX", 2)
    puts = itertools.count()

    def answer(request: Request) -> Answer:
        if request.method == "GET":
            return Answer(200, b"ours")
        first = next(puts) == 0
        return error(503, "SlowDown") if first else error(412, "PreconditionFailed")

    async with against(answer) as (store, requests):
        await store.put_new("a", [b"ours"])
    assert len(requests) == 3


async def test_conflict_of_puts_of_which_none_succeeded_may_pass() -> None:
    def answer(request: Request) -> Answer:
        if request.method == "GET":
            return error(404, "NoSuchKey")
        return error(409, "ConditionalRequestConflict")

    async with against(answer) as (store, _):
        with pytest.raises(StoreUnavailableError, match="being put by another"):
            await store.put_new("a", [b"x"])


def listing(keys: list[str], more: str = "") -> Answer:
    rows = "".join(
        f"<Contents><Key>{key}</Key><Size>1</Size>"
        "<LastModified>2026-11-21T10:00:00.000Z</LastModified></Contents>"
        for key in keys
    )
    token = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    truncated = "true" if more else "false"
    body = (
        '<?xml version="1.0"?><ListBucketResult>'
        f"<IsTruncated>{truncated}</IsTruncated>{token}{rows}</ListBucketResult>"
    )
    return Answer(200, body.encode())


async def test_page_without_objects_of_a_listing_that_goes_on_is_not_the_end() -> None:
    def answer(request: Request) -> Answer:
        return listing(["a"]) if "continuation-token=t" in request.path else listing([], "t")

    async with against(answer) as (store, requests):
        assert [row.key for row in await store.list_after("", "")] == ["a"]
    assert len(requests) == 2


async def test_folders_are_listed_page_by_page_after_a_key() -> None:
    async with against(lambda _: listing(["f/b", "f/c"])) as (store, requests):
        rows = await store.list_after("f/", "f/a")
        assert [(row.key, row.length, row.modified_ms) for row in rows] == [
            (key, 1, 1_795_255_200_000) for key in ("f/b", "f/c")
        ]
    (request,) = requests
    assert "prefix=f%2F&" in request.path + "&"
    assert "start-after=f%2Fa&" in request.path + "&"


async def test_names_that_are_nobodys_of_ours_are_listed_with_the_others() -> None:
    async with against(lambda _: listing(["f/a//b", "f/c"])) as (store, _):
        assert [row.key for row in await store.list_after("f/", "")] == ["f/a//b", "f/c"]


async def test_an_agent_that_has_its_keys_does_without_awss_tools_until_it_deletes() -> None:
    def answer(request: Request) -> Answer:
        if request.method == "POST":
            return Answer(200, b"<DeleteResult></DeleteResult>")
        if "list-type" in request.path:
            return listing([])
        ranged = (("content-range", "bytes 0-0/1"),)
        return Answer(206, b"x", ranged) if "range" in request.headers else Answer(200, b"x")

    async with against(answer) as (store, _):
        for call in calls(store):
            await call
        assert store._aws is None
        assert await store.delete(["a"]) == []
        assert store._aws is not None


@pytest.mark.parametrize(
    ("environment", "region"),
    [
        ({}, "us-east-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1"),
        ({"AWS_PROFILE": "somebody"}, None),
        ({"AWS_CONFIG_FILE": __file__}, None),
    ],
)
def test_the_region_of_the_environment_is_known_where_no_file_says_it(
    environment: dict[str, str], region: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert s3._region_of_environment() == region


async def test_what_is_not_permitted_is_refused_and_of_a_deletion_each_key_is() -> None:
    async with against(lambda _: error(403, "AccessDenied")) as (store, _):
        await each_raises(StoreRefusedError, "check the credentials", *calls(store))
        refused = await store.delete(["a", "b"])
        assert [each.key for each in refused] == ["a", "b"]
        assert all("AccessDenied, told so" in each.reason for each in refused)


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidObjectState", "InternalError"])
async def test_whatever_is_said_of_one_key_is_said_of_that_key_alone(code: str) -> None:
    body = (
        f"<DeleteResult><Error><Key>a</Key><Code>{code}</Code><Message>held</Message></Error>"
        "<Error><Key>gone</Key><Code>NoSuchKey</Code></Error></DeleteResult>"
    )

    async with against(lambda _: Answer(200, body.encode())) as (store, _):
        assert await store.delete(["a", "b", "gone"]) == [("a", f"{code}, held")]


async def test_pages_of_a_long_deletion_go_on_after_one_that_was_refused() -> None:
    keys = [f"k{number}" for number in range(1500)]

    answers = iter([error(403, "AccessDenied"), Answer(200, b"<DeleteResult></DeleteResult>")])
    async with against(lambda _: next(answers)) as (store, requests):
        assert [each.key for each in await store.delete(keys)] == keys[:1000]
    assert len(requests) == 2


async def test_more_keys_than_one_request_takes_are_deleted_by_several() -> None:
    async with against(lambda _: Answer(200, b"<DeleteResult></DeleteResult>")) as (
        store,
        requests,
    ):
        await store.delete([f"k{number}" for number in range(2001)])
    assert [request.body.count(b"<Key>") for request in requests] == [1000, 1000, 1]


async def test_credentials_that_expire_are_renewed_before_they_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewals = itertools.count(1)

    async def renew() -> dict[str, str]:
        # Less than what is left when clients ask for new ones, so each request wants a new one.
        expiry = datetime.now(UTC) + timedelta(seconds=200)
        return {
            "access_key": f"key{next(renewals)}",
            "secret_key": "secret",
            "token": "token",
            "expiry_time": expiry.isoformat(),
        }

    async def found(_: object) -> Any:
        return credentials

    credentials = AioRefreshableCredentials.create_from_metadata(
        metadata=await renew(), refresh_using=renew, method="test"
    )
    monkeypatch.setattr(AioSession, "get_credentials", found)

    async with against(lambda _: Answer(200, b"x")) as (fixed, requests):
        # The fake server's store has keys of its own; this one finds them as AWS's tools do.
        address = S3Address("bucket", endpoint=fixed._address.endpoint)
        async with aclosing(S3Store(address)) as store:
            for _ in range(3):
                await store.get("a")
                await asyncio.sleep(0.15)
    keys = [r.headers["authorization"].partition("Credential=")[2][:4] for r in requests]
    assert len(set(keys)) == 3
    assert {request.headers["x-amz-security-token"] for request in requests} == {"token"}


async def test_missing_credentials_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def found(_: object) -> None:
        return None

    monkeypatch.setattr(AioSession, "get_credentials", found)

    async with against(lambda _: Answer()) as (fixed, requests):
        store = S3Store(S3Address("bucket", endpoint=fixed._address.endpoint))
        with pytest.raises(StoreRefusedError, match="no credentials were found"):
            await store.get("a")
        with pytest.raises(StoreRefusedError, match="no credentials were found"):
            await store.put_new("a", [b"x"])
        await store.aclose()
    assert requests == []


async def test_certificate_file_that_is_none_is_refused(tmp_path: Any) -> None:
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")
    async with aclosing(S3Store(fake("https://127.0.0.1:9", ca_file=bad))) as store:
        with pytest.raises(StoreRefusedError, match="cannot be set up"):
            await store.get("a")


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        (S3Address("bucket", endpoint="http://host:9000"), "http://host:9000"),
        (S3Address("bucket", endpoint="https://host", path_style=False), "https://bucket.host"),
        (
            S3Address("bucket", region="eu-central-1"),
            "https://bucket.s3.eu-central-1.amazonaws.com",
        ),
        (
            S3Address("bucket", region="eu-central-1", path_style=True),
            "https://s3.eu-central-1.amazonaws.com",
        ),
    ],
)
async def test_bucket_is_in_the_path_or_the_host_as_set(
    monkeypatch: pytest.MonkeyPatch, address: S3Address, endpoint: str
) -> None:
    made: list[dict[str, Any]] = []

    def make(_: str, *, config: dict[str, Any], **__: Any) -> None:
        made.append(config)
        raise ValueError("seen enough")

    monkeypatch.setattr(s3, "Blobs", make)

    with pytest.raises(StoreRefusedError, match="seen enough"):
        await S3Store(address).get("a")
    (config,) = made
    assert config["endpoint"] == endpoint
    assert config["virtual_hosted_style_request"] is not endpoint.startswith(
        ("http://host", "https://s3")
    )


def real(minio: Any, **given: Any) -> S3Store:
    known = {name: getattr(minio, name) for name in ("endpoint", "access_key", "secret_key")}
    return S3Store(
        S3Address(**known | {"bucket": given.get("bucket") or minio.new_bucket()} | given)
    )


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (error(403, "RequestTimeTooSkewed"), FaultCode.CLOCK_SKEW),
        (error(403, "AccessDenied"), FaultCode.STORE_DENIED),
        (error(400, "AuthorizationHeaderMalformed"), FaultCode.STORE_DENIED),
        (error(301, "PermanentRedirect"), FaultCode.STORE_DENIED),
    ],
)
async def test_a_refusal_has_the_code_of_what_must_be_mended(
    answer: Answer, fault: FaultCode
) -> None:
    async with against(lambda _: answer) as (store, _):
        with pytest.raises(StoreRefusedError) as refused:
            await store.put_new("a", [b"x"])
        assert refused.value.fault is fault


@pytest.mark.integration
async def test_real_server_refuses_a_wrong_secret(minio: Any) -> None:
    async with aclosing(real(minio, secret_key="wrong-secret")) as store:
        await each_raises(StoreRefusedError, "check the credentials", *calls(store))


CALLS = """
import asyncio, sys
from protocol.fault_codes import fault_of
from storage.stores.object_store import StoreRefusedError
from storage.stores.s3 import S3Address, S3Store

async def main(bucket, endpoint, access_key, secret_key):
    store = S3Store(
        S3Address(bucket, endpoint=endpoint, access_key=access_key, secret_key=secret_key)
    )
    for line in sys.stdin:
        key, told = line.strip(), []
        for call in (lambda: store.put_new(key, [b"x"]), lambda: store.delete([key])):
            try:
                await call()
                told.append("done")
            except StoreRefusedError as error:
                told.append(str(fault_of(error)))
        print(*told, flush=True)
    await store.aclose()

asyncio.run(main(*sys.argv[1:]))
"""
"""A PUT is signed by obstore, a deletion by botocore."""


@pytest.mark.integration
def test_a_clock_that_the_store_refuses_is_told_and_when_it_is_right_the_same_client_works(
    minio: Any, tmp_path: Path
) -> None:
    """Neither of the clients corrects its time by the store's (docs/design/running.md §8)."""
    if (library := install.libfaketime()) is None:
        assert sys.platform != "linux"
        return
    clock = WallClock(library, tmp_path / "time")
    place = (minio.new_bucket(), minio.endpoint, minio.access_key, minio.secret_key)
    program = subprocess.Popen(
        [sys.executable, "-c", CALLS, *place],
        env=clock.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    skew = str(FaultCode.CLOCK_SKEW)
    with program:
        assert program.stdin is not None
        assert program.stdout is not None
        for number, (ahead_s, expected) in enumerate(
            [(0.0, "done"), (1200.0, skew), (-1200.0, skew), (600.0, "done"), (0.0, "done")]
        ):
            clock.set(ahead_s)
            program.stdin.write(f"object-{number}\n")
            program.stdin.flush()
            assert program.stdout.readline().split() == [expected, expected], ahead_s
        program.stdin.close()


@pytest.mark.integration
async def test_real_server_without_the_bucket_says_so(minio: Any) -> None:
    async with aclosing(real(minio, bucket="no-such-bucket")) as store:
        await each_raises(StoreRefusedError, "create the bucket first", *calls(store))


@pytest.mark.integration
@pytest.mark.parametrize("checksum", ["crc64nvme", "sha256", None])
async def test_real_server_takes_every_checksum(minio: Any, checksum: str | None) -> None:
    async with aclosing(real(minio, checksum=checksum)) as store:
        await store.put_new("a", [b"x" * 100_000, b"y"])
        assert await store.get("a") == b"x" * 100_000 + b"y"


@contextlib.asynccontextmanager
async def through_proxy(minio: Any) -> AsyncIterator[tuple[S3Store, Proxy]]:
    """A store that reaches the real server through a proxy."""
    async with Proxy(minio.port) as proxy, aclosing(real(minio, endpoint=proxy.url)) as store:
        yield store, proxy


@pytest.mark.integration
async def test_real_server_keeps_nothing_of_bytes_that_changed_on_the_way(minio: Any) -> None:
    async with through_proxy(minio) as (store, proxy):
        proxy.damage = lambda data: data.replace(b"sound bytes", b"other bytes")
        with pytest.raises(StoreUnavailableError):
            await store.put_new("a", [b"x" * 100_000, b"sound bytes"])
        with pytest.raises(ObjectNotFoundError):
            await store.get("a")
        proxy.damage = None
        await store.put_new("a", [b"sound bytes"])


@pytest.mark.integration
async def test_put_whose_answer_was_lost_is_settled_by_repeating_it(minio: Any) -> None:
    async with through_proxy(minio) as (store, proxy):
        proxy.lose_answers = True
        with pytest.raises(StoreUnavailableError):
            await store.put_new("a", [b"x" * 100_000])
        proxy.lose_answers = False
        await store.put_new("a", [b"x" * 100_000])
        with pytest.raises(ObjectExistsError):
            await store.put_new("a", [b"y" * 100_000])


@pytest.mark.integration
async def test_real_server_finds_keys_under_the_prefix_only(minio: Any) -> None:
    bucket = minio.new_bucket()
    for prefix in ("in/side", ""):
        async with aclosing(real(minio, bucket=bucket, prefix=prefix)) as store:
            await store.put_new("k", [b"x"])
    async with aclosing(real(minio, bucket=bucket)) as store:
        assert [row.key for row in await store.list_after("", "")] == ["in/side/k", "k"]


def test_certificate_that_is_not_trusted_is_called_so() -> None:
    # As obstore 0.12 words it; a server with such a certificate would cost a second to start.
    text = (
        "Generic S3 error: HTTP error: error sending request\n\nDebug source:\n"
        "kind: Connect, error: Custom {\n kind: InvalidData,\n"
        " error: InvalidCertificate(\n  UnknownIssuer,\n ),\n}"
    )
    assert s3._cause_of(text) == "its certificate is not trusted (UnknownIssuer)"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("what happened", "what happened"),
        ('it failed\n\nDebug source:\n kind: A, message: "no route", ', "it failed (no route)"),
        (
            "it failed\n\nDebug source:\n kind: A, source: { kind: TimedOut }",
            "it failed (TimedOut)",
        ),
    ],
)
def test_cause_is_the_innermost_that_is_told(text: str, cause: str) -> None:
    assert s3._cause_of(text) == cause
