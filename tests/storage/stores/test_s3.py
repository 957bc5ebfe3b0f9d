"""The S3 adapter against a server that misbehaves as told, and against a real one."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiobotocore.credentials import AioRefreshableCredentials

from storage.stores import s3
from storage.stores.object_store import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)
from storage.stores.s3 import S3Address, S3Store
from tests.storage.stores.fake_s3 import HANG_UP, Answer, FakeS3, Request, error
from tests.storage.stores.proxy import Proxy

Test = Callable[[S3Store], Awaitable[None]]


def against(answers: Callable[[Request], Answer], test: Test) -> list[Request]:
    """Run the test against a server that answers so; the requests it got."""

    async def answer(request: Request) -> Answer:
        return answers(request)

    server = FakeS3(answer)
    asyncio.run(server.serve(test))
    return server.requests


@pytest.fixture(autouse=True)
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own retries only cost time here; one test looks at them."""
    monkeypatch.setattr(s3, "RETRIES_MAX", 0)


def test_put_is_one_conditional_request_with_a_checksum_and_without_a_signed_payload() -> None:
    async def test(store: S3Store) -> None:
        await store.put_new("a/b", [b"one", memoryview(b"two")])

    (request,) = against(lambda _: Answer(), test)
    assert (request.method, request.path, request.body) == ("PUT", "/bucket/a/b", b"onetwo")
    assert request.headers["if-none-match"] == "*"
    assert request.headers["x-amz-checksum-crc64nvme"]
    assert request.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 429])
def test_answers_that_may_pass_are_unavailable(status: int) -> None:
    async def test(store: S3Store) -> None:
        for call in (
            store.put_new("a", [b"x"]),
            store.get("a"),
            store.get_range("a", 0, 1),
            store.list_after("", ""),
            store.delete(["a"]),
        ):
            with pytest.raises(StoreUnavailableError, match="told so"):
                await call

    against(lambda _: error(status, "SlowDown"), test)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (error(403, "SignatureDoesNotMatch"), "check the credentials"),
        (error(401, "Unauthorized"), "check the credentials"),
        (error(404, "NoSuchBucket"), "create the bucket"),
        (error(400, "InvalidBucketName"), "InvalidBucketName"),
        (error(405, "MethodNotAllowed"), "MethodNotAllowed"),
    ],
)
def test_answers_that_repeating_will_not_change_are_refused(answer: Answer, sentence: str) -> None:
    async def test(store: S3Store) -> None:
        for call in (
            store.put_new("a", [b"x"]),
            store.get("a"),
            store.get_range("a", 0, 1),
            store.list_after("", ""),
            store.delete(["a"]),
        ):
            with pytest.raises(StoreRefusedError, match=sentence):
                await call

    against(lambda _: answer, test)


@pytest.mark.parametrize("code", ["ExpiredToken", "BadDigest", "XAmzContentChecksumMismatch"])
def test_refusals_that_repeating_can_change_may_pass(code: str) -> None:
    async def test(store: S3Store) -> None:
        with pytest.raises(StoreUnavailableError):
            await store.put_new("a", [b"x"])
        with pytest.raises(StoreUnavailableError):
            await store.list_after("", "")

    against(lambda _: error(400, code), test)


def test_only_reading_can_find_nothing() -> None:
    async def test(store: S3Store) -> None:
        with pytest.raises(StoreRefusedError):
            await store.put_new("a", [b"x"])
        with pytest.raises(ObjectNotFoundError):
            await store.get("a")
        with pytest.raises(ObjectNotFoundError):
            await store.get_range("a", 0, 1)

    against(lambda _: error(404, "NoSuchKey"), test)


def test_errors_name_the_place_and_no_secret() -> None:
    async def test(store: S3Store) -> None:
        with pytest.raises(StoreRefusedError) as caught:
            await store.get("a")
        assert "bucket bucket at http://127.0.0.1" in str(caught.value)
        assert "hidden-one" not in str(caught.value)

    against(lambda _: error(403, "AccessDenied"), test)


def test_server_that_hangs_up_is_unavailable() -> None:
    async def test(store: S3Store) -> None:
        for call in (
            store.put_new("a", [b"x"]),
            store.get("a"),
            store.get_range("a", 0, 1),
            store.list_after("", ""),
        ):
            with pytest.raises(StoreUnavailableError):
                await call

    against(lambda _: HANG_UP, test)


def test_port_where_nobody_listens_is_unavailable_and_says_so() -> None:
    async def test() -> None:
        store = S3Store(
            S3Address("bucket", endpoint="http://127.0.0.1:9", access_key="k", secret_key="s")
        )
        with pytest.raises(StoreUnavailableError, match="Connection refused"):
            await store.put_new("a", [b"x"])
        with pytest.raises(StoreUnavailableError):
            await store.list_after("", "")
        await store.aclose()

    asyncio.run(test())


def test_body_that_is_cut_off_is_unavailable_never_short() -> None:
    async def test(store: S3Store) -> None:
        with pytest.raises(StoreUnavailableError):
            await store.get("a")
        with pytest.raises(StoreUnavailableError):
            await store.get_range("a", 0, 10)

    def answer(request: Request) -> Answer:
        ranged = "range" in request.headers
        headers = (("content-range", "bytes 0-9/10"),) if ranged else ()
        return Answer(206 if ranged else 200, b"0123456789", headers, cut=True)

    against(answer, test)


def test_server_that_ignores_ranges_is_refused() -> None:
    async def test(store: S3Store) -> None:
        with pytest.raises(StoreRefusedError):
            await store.get_range("a", 3, 4)

    against(lambda _: Answer(200, b"0123456789"), test)


def lost_answer(present: bytes) -> Callable[[Request], Answer]:
    """To PUT: the answer of the first is lost, then "it exists"; to GET: what is there."""
    puts = itertools.count()

    def answer(request: Request) -> Answer:
        if request.method == "GET":
            return Answer(200, present)
        return HANG_UP if next(puts) == 0 else error(412, "PreconditionFailed")

    return answer


def test_put_after_a_lost_answer_succeeds_when_the_bytes_are_there() -> None:
    async def test(store: S3Store) -> None:
        with pytest.raises(StoreUnavailableError):
            await store.put_new("a", [b"our ", b"bytes"])
        await store.put_new("a", [b"our ", b"bytes"])

    requests = against(lost_answer(b"our bytes"), test)
    assert [request.method for request in requests] == ["PUT", "PUT", "GET"]


def test_put_after_a_lost_answer_fails_when_other_bytes_are_there() -> None:
    async def test(store: S3Store) -> None:
        with pytest.raises(StoreUnavailableError):
            await store.put_new("a", [b"our bytes"])
        with pytest.raises(ObjectExistsError):
            await store.put_new("a", [b"our bytes"])

    against(lost_answer(b"not ours!"), test)


def test_lost_answer_is_settled_within_one_call_where_the_client_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "RETRIES_MAX", 2)
    puts = itertools.count()

    def answer(request: Request) -> Answer:
        if request.method == "GET":
            return Answer(200, b"ours")
        first = next(puts) == 0
        return error(503, "SlowDown") if first else error(412, "PreconditionFailed")

    async def test(store: S3Store) -> None:
        await store.put_new("a", [b"ours"])

    assert len(against(answer, test)) == 3


def test_conflict_of_puts_of_which_none_succeeded_may_pass() -> None:
    async def test(store: S3Store) -> None:
        with pytest.raises(StoreUnavailableError, match="being put by another"):
            await store.put_new("a", [b"x"])

    def answer(request: Request) -> Answer:
        if request.method == "GET":
            return error(404, "NoSuchKey")
        return error(409, "ConditionalRequestConflict")

    against(answer, test)


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


def test_page_without_objects_of_a_listing_that_goes_on_is_not_the_end() -> None:
    async def test(store: S3Store) -> None:
        assert [row.key for row in await store.list_after("", "")] == ["a"]

    def answer(request: Request) -> Answer:
        return listing(["a"]) if "continuation-token=t" in request.path else listing([], "t")

    assert len(against(answer, test)) == 2


def test_what_is_not_permitted_is_refused_and_of_a_deletion_each_key_is() -> None:
    async def test(store: S3Store) -> None:
        for call in (
            store.put_new("a", [b"x"]),
            store.get("a"),
            store.get_range("a", 0, 1),
            store.list_after("", ""),
        ):
            with pytest.raises(StoreRefusedError, match="check the credentials"):
                await call
        refused = await store.delete(["a", "b"])
        assert [each.key for each in refused] == ["a", "b"]
        assert all("AccessDenied, told so" in each.reason for each in refused)

    against(lambda _: error(403, "AccessDenied"), test)


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidObjectState", "InternalError"])
def test_whatever_is_said_of_one_key_is_said_of_that_key_alone(code: str) -> None:
    body = (
        f"<DeleteResult><Error><Key>a</Key><Code>{code}</Code><Message>held</Message></Error>"
        "<Error><Key>gone</Key><Code>NoSuchKey</Code></Error></DeleteResult>"
    )

    async def test(store: S3Store) -> None:
        assert await store.delete(["a", "b", "gone"]) == [("a", f"{code}, held")]

    against(lambda _: Answer(200, body.encode()), test)


def test_pages_of_a_long_deletion_go_on_after_one_that_was_refused() -> None:
    keys = [f"k{number}" for number in range(1500)]

    async def test(store: S3Store) -> None:
        assert [each.key for each in await store.delete(keys)] == keys[:1000]

    answers = iter([error(403, "AccessDenied"), Answer(200, b"<DeleteResult></DeleteResult>")])
    assert len(against(lambda _: next(answers), test)) == 2


def test_more_keys_than_one_request_takes_are_deleted_by_several() -> None:
    async def test(store: S3Store) -> None:
        await store.delete([f"k{number}" for number in range(2001)])

    requests = against(lambda _: Answer(200, b"<DeleteResult></DeleteResult>"), test)
    assert [request.body.count(b"<Key>") for request in requests] == [1000, 1000, 1]


def test_credentials_that_expire_are_renewed_before_they_do(
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
        metadata=asyncio.run(renew()), refresh_using=renew, method="test"
    )
    monkeypatch.setattr(s3.AioSession, "get_credentials", found)

    async def test(fixed: S3Store) -> None:
        # The fake server's store has keys of its own; this one finds them as AWS's tools do.
        address = S3Address("bucket", endpoint=fixed._address.endpoint)
        store = S3Store(address)
        for _ in range(3):
            await store.get("a")
            await asyncio.sleep(0.15)
        await store.aclose()

    requests = against(lambda _: Answer(200, b"x"), test)
    keys = [r.headers["authorization"].partition("Credential=")[2][:4] for r in requests]
    assert len(set(keys)) == 3
    assert {request.headers["x-amz-security-token"] for request in requests} == {"token"}


def test_missing_credentials_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def found(_: object) -> None:
        return None

    monkeypatch.setattr(s3.AioSession, "get_credentials", found)

    async def test(fixed: S3Store) -> None:
        store = S3Store(S3Address("bucket", endpoint=fixed._address.endpoint))
        with pytest.raises(StoreRefusedError, match="no credentials were found"):
            await store.get("a")
        with pytest.raises(StoreRefusedError, match="no credentials were found"):
            await store.put_new("a", [b"x"])
        await store.aclose()

    assert against(lambda _: Answer(), test) == []


def test_certificate_file_that_is_none_is_refused(tmp_path: Any) -> None:
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")

    async def test() -> None:
        store = S3Store(
            S3Address(
                "bucket",
                endpoint="https://127.0.0.1:9",
                access_key="k",
                secret_key="s",
                ca_file=bad,
            )
        )
        with pytest.raises(StoreRefusedError, match="cannot be set up"):
            await store.get("a")
        await store.aclose()

    asyncio.run(test())


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
def test_bucket_is_in_the_path_or_the_host_as_set(
    monkeypatch: pytest.MonkeyPatch, address: S3Address, endpoint: str
) -> None:
    made: list[dict[str, Any]] = []

    def make(_: str, *, config: dict[str, Any], **__: Any) -> None:
        made.append(config)
        raise ValueError("seen enough")

    monkeypatch.setattr(s3, "Blobs", make)

    async def test() -> None:
        with pytest.raises(StoreRefusedError, match="seen enough"):
            await S3Store(address).get("a")

    asyncio.run(test())
    (config,) = made
    assert config["endpoint"] == endpoint
    assert config["virtual_hosted_style_request"] is not endpoint.startswith(
        ("http://host", "https://s3")
    )


def real(minio: Any, *, secret_key: str = "", bucket: str = "", **changes: Any) -> S3Store:
    return S3Store(
        S3Address(
            bucket=bucket or minio.new_bucket(),
            endpoint=minio.endpoint,
            access_key=minio.access_key,
            secret_key=secret_key or minio.secret_key,
            **changes,
        )
    )


def run_real(store: S3Store, test: Test) -> None:
    async def whole() -> None:
        try:
            await test(store)
        finally:
            await store.aclose()

    asyncio.run(whole())


@pytest.mark.integration
def test_real_server_refuses_a_wrong_secret(minio: Any) -> None:
    async def test(store: S3Store) -> None:
        for call in (store.put_new("a", [b"x"]), store.get("a"), store.list_after("", "")):
            with pytest.raises(StoreRefusedError, match="check the credentials"):
                await call

    run_real(real(minio, secret_key="wrong-secret"), test)


@pytest.mark.integration
def test_real_server_without_the_bucket_says_so(minio: Any) -> None:
    async def test(store: S3Store) -> None:
        for call in (
            store.put_new("a", [b"x"]),
            store.get("a"),
            store.get_range("a", 0, 1),
            store.list_after("", ""),
        ):
            with pytest.raises(StoreRefusedError, match="create the bucket first"):
                await call

    run_real(real(minio, bucket="no-such-bucket"), test)


@pytest.mark.integration
@pytest.mark.parametrize("checksum", ["crc64nvme", "sha256", None])
def test_real_server_takes_every_checksum(minio: Any, checksum: str | None) -> None:
    async def test(store: S3Store) -> None:
        await store.put_new("a", [b"x" * 100_000, b"y"])
        assert await store.get("a") == b"x" * 100_000 + b"y"

    run_real(real(minio, checksum=checksum), test)


def through_proxy(minio: Any, test: Callable[[S3Store, Proxy], Awaitable[None]]) -> None:
    """Run the test with a store that reaches the real server through a proxy."""
    proxy = Proxy(minio.port)
    bucket = minio.new_bucket()

    async def with_url(url: str) -> None:
        store = S3Store(
            S3Address(
                bucket=bucket,
                endpoint=url,
                access_key=minio.access_key,
                secret_key=minio.secret_key,
            )
        )
        try:
            await test(store, proxy)
        finally:
            await store.aclose()

    asyncio.run(proxy.serve(with_url))


@pytest.mark.integration
def test_real_server_keeps_nothing_of_bytes_that_changed_on_the_way(minio: Any) -> None:
    async def test(store: S3Store, proxy: Proxy) -> None:
        proxy.damage = lambda data: data.replace(b"sound bytes", b"other bytes")
        with pytest.raises(StoreUnavailableError):
            await store.put_new("a", [b"x" * 100_000, b"sound bytes"])
        with pytest.raises(ObjectNotFoundError):
            await store.get("a")
        proxy.damage = None
        await store.put_new("a", [b"sound bytes"])

    through_proxy(minio, test)


@pytest.mark.integration
def test_put_whose_answer_was_lost_is_settled_by_repeating_it(minio: Any) -> None:
    async def test(store: S3Store, proxy: Proxy) -> None:
        proxy.lose_answers = True
        with pytest.raises(StoreUnavailableError):
            await store.put_new("a", [b"x" * 100_000])
        proxy.lose_answers = False
        await store.put_new("a", [b"x" * 100_000])
        with pytest.raises(ObjectExistsError):
            await store.put_new("a", [b"y" * 100_000])

    through_proxy(minio, test)


@pytest.mark.integration
def test_real_server_finds_keys_under_the_prefix_only(minio: Any) -> None:
    bucket = minio.new_bucket()

    async def put(store: S3Store) -> None:
        await store.put_new("k", [b"x"])

    async def look(store: S3Store) -> None:
        assert [row.key for row in await store.list_after("", "")] == ["in/side/k", "k"]

    run_real(real(minio, bucket=bucket, prefix="in/side"), put)
    run_real(real(minio, bucket=bucket), put)
    run_real(real(minio, bucket=bucket), look)


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
