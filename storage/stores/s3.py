"""An object store in an S3 bucket: obstore for what is frequent, AWS's own tools for the rest.

obstore moves bytes off the event loop without copying them, and lists folders. Credentials that have to
be found, deletions and other listings are aiobotocore's (`storage.stores.s3_session`), which takes half a
second of CPU to have: an agent that has keys and an endpoint does without it until it has something to
delete, so that a start does not wait for it. Clients are made on first use, so that an agent starts
without the store.

An object is created by a PUT with If-None-Match. If one is there already, as after an answer
that was lost, its bytes are compared: the same are success. Each PUT carries a CRC-64/NVME that
the store verifies; the payload is not signed (SHA-256 would cost 2.5 ms per MiB).

Errors are told apart by status: 5xx, 408, 425 and 429, broken connections and expired tokens
may pass (StoreUnavailableError), other answers will not (StoreRefusedError). Retries are few and
short; who needs the call done repeats it. What the answer to a deletion says of one key is said of
that key alone; and where nothing may be deleted, each object is refused.
"""

import asyncio
import contextlib
import html
import importlib
import logging
import os
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, UnauthenticatedError
from obstore.store import S3Store as Blobs

from protocol.fault_codes import FaultCode
from protocol.types import Buffer
from storage.stores.adapter_rules import (
    PAGE_OBJECTS_MAX,
    check_key,
    check_prefix,
    check_range,
    range_refused,
    same_bytes,
)
from storage.stores.object_store import (
    DeleteRefusal,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from storage.stores.retry_policy import moving_s

if TYPE_CHECKING:
    from storage.stores.s3_session import AwsError, AwsSession

logger = logging.getLogger(__name__)

CONNECT_SECONDS_MAX: Final = 3.0
REQUEST_SECONDS_MAX: Final = 30.0
"""Without an answer; what moves many bytes has time for them, too (`retry_policy.moving_s`)."""
OBJECT_BYTES_MAX: Final = 5 << 30
"""S3 takes no more by one PUT."""
RETRIES_MAX: Final = 2
IDLE_CONNECTIONS_MAX: Final = 64
REGION_DEFAULT: Final = "us-east-1"

CREDENTIALS_SECONDS_MAX: Final = 15.0
"""For so long a machine's metadata service may be silent: it is, while a machine starts, and where there is none."""
TELL_SECONDS: Final = 2.0
"""Credentials that are looked for longer are told of."""

_PASSING_STATUS: Final = frozenset({408, 425, 429})
_PASSING_CODES: Final = frozenset(
    {
        "BadDigest",  # Damaged on the way.
        "ExpiredToken",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "SlowDown",
        "XAmzContentChecksumMismatch",
    }
)
_SKEW_CODES: Final = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_NO_CREDENTIALS: Final = "NoCredentialsError"
"""In the text of obstore's error, when AWS's tools found none."""
_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(\w+)")
_CAUSE: Final = re.compile(r'(?:message|error): "([^"]+)"|kind: (\w+)')


@dataclass(frozen=True, slots=True)
class S3Address:
    """Where the bucket is and how to get in; None leaves it to AWS's own configuration."""

    bucket: str
    prefix: str = ""
    """Of all keys, without a slash at the end."""
    endpoint: str | None = None
    """URL of a server that is not AWS; http:// or https://."""
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    """PEM file of certificates to trust beside the system's."""
    path_style: bool | None = None
    """http://host/bucket/key instead of http://bucket.host/key; None: with an own endpoint."""
    checksum: str | None = "crc64nvme"
    """Sent with every PUT: crc64nvme, sha256, or None for servers that know neither."""


class _DeniedError(StoreRefusedError):
    """The credentials are good, and do not permit this."""


class S3Store:
    """An `ObjectStore` in one bucket, under a prefix."""

    def __init__(self, address: S3Address) -> None:
        self._address = address
        self._prefix = address.prefix + "/" if address.prefix else ""
        self._lock = asyncio.Lock()
        self._blobs: tuple[Blobs, Blobs] | None = None
        """Of writes, and of reads: only an answer can be seen to stall."""
        self._aws: AwsSession | None = None
        self._silent_since_s: float | None = None
        """Since when nobody has said whether there are credentials, in the loop's time."""
        self._has_told = False
        """That credentials are waited for."""

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        check_key(key)
        blobs = await self._connect(reading=False)
        body = [part for part in parts if len(part)]
        try:
            # A list of buffers is sent as it is; multipart could not be conditional in one step.
            async with _within(sum([memoryview(part).nbytes for part in body])):
                await obstore.put_async(
                    blobs, self._prefix + key, body, mode="create", use_multipart=False
                )
        except AlreadyExistsError as error:
            await self._compare(key, parts, error)
        except (BaseError, OSError) as error:
            self._fail(f"putting {key}", error)

    async def _compare(self, key: str, parts: Sequence[Buffer], cause: Exception) -> None:
        """After "it exists": success when it is ours, of this call or one before."""
        try:
            present = await self.get(key)
        except ObjectNotFoundError:
            # 409: another PUT of the key was under way and did not succeed either.
            raise StoreUnavailableError(f"{key} is being put by another call") from cause
        if not same_bytes(present, parts):
            raise ObjectExistsError(f"{key} exists with other bytes") from cause

    async def get(self, key: str) -> Buffer:
        check_key(key)
        blobs = await self._connect()
        try:
            async with _within():
                answer = await obstore.get_async(blobs, self._prefix + key)
            async with _within(answer.meta["size"]):
                return memoryview(await answer.bytes_async())
        except FileNotFoundError as error:
            self._missing(key, error)
        except (BaseError, OSError) as error:
            self._fail(f"getting {key}", error)

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        check_range(key, start, length)
        blobs = await self._connect()
        try:
            async with _within(length):
                data = memoryview(
                    await obstore.get_range_async(
                        blobs, self._prefix + key, start=start, length=length
                    )
                )
        except FileNotFoundError as error:
            self._missing(key, error)
        except (BaseError, OSError) as error:
            if _status_of(error) == 416:
                raise range_refused(key, start, length, found=0) from error
            self._fail(f"getting {key}", error)
        if len(data) != length:
            raise range_refused(key, start, length, found=len(data))
        return data

    async def list_after(self, prefix: str, start_after: str) -> Sequence[ObjectInfo]:
        check_prefix(prefix)
        if prefix and not prefix.endswith("/"):
            return await self._list_names(prefix, start_after)
        blobs = await self._connect()
        stream = obstore.list(
            blobs,
            self._prefix + prefix or None,
            offset=self._prefix + start_after if start_after else None,
            chunk_size=PAGE_OBJECTS_MAX,
        )
        try:
            async with _within():
                page = await stream.__anext__()
        except StopAsyncIteration:
            return []
        except (BaseError, OSError) as error:
            if _is_strange_name(error):
                return await self._list_names(prefix, start_after)
            self._fail("listing", error)
        return [self._info(row["path"], row["size"], row["last_modified"]) for row in page]

    async def _list_names(self, prefix: str, start_after: str) -> Sequence[ObjectInfo]:
        """Whatever the names are like, and wherever the prefix ends in them."""
        from storage.stores.s3_session import AwsError

        aws = await self._connect_aws()
        after = self._prefix + start_after if start_after else ""
        try:
            page = await aws.list(
                self._address.bucket, self._prefix + prefix, after, PAGE_OBJECTS_MAX
            )
        except AwsError as error:
            raise self._error_of_aws("listing", error) from error
        return [self._info(row["Key"], row["Size"], row["LastModified"]) for row in page]

    def _info(self, key: str, length: int, modified: datetime) -> ObjectInfo:
        return ObjectInfo(
            key.removeprefix(self._prefix), int(length), int(modified.timestamp() * 1000)
        )

    async def delete(self, keys: Sequence[str]) -> Sequence[DeleteRefusal]:
        for key in keys:
            check_key(key)
        once = list(dict.fromkeys(keys))
        refused: list[DeleteRefusal] = []
        for at in range(0, len(once), PAGE_OBJECTS_MAX):
            refused += await self._delete(once[at : at + PAGE_OBJECTS_MAX])
        return refused

    async def _delete(self, keys: Sequence[str]) -> list[DeleteRefusal]:
        aws = await self._connect_aws()
        from storage.stores.s3_session import AwsError

        try:
            failures = await aws.delete(self._address.bucket, [self._prefix + key for key in keys])
        except AwsError as error:
            told = self._error_of_aws("deleting", error)
            if isinstance(told, _DeniedError):
                return [DeleteRefusal(key, str(told)) for key in keys]
            raise told from error
        refused = []
        for failure in failures:
            code, message = (str(failure.get(name, "")) for name in ("Code", "Message"))
            if code != "NoSuchKey":
                key = str(failure.get("Key")).removeprefix(self._prefix)
                refused.append(DeleteRefusal(key, ", ".join(filter(None, (code, message)))))
        return refused

    async def aclose(self) -> None:
        async with self._lock:
            self._blobs = None
            aws, self._aws = self._aws, None
            if aws is not None:
                await aws.aclose()

    async def _connect(self, *, reading: bool = True) -> Blobs:
        """obstore's client, made on first use."""
        if self._blobs is None:
            async with self._lock:
                if self._blobs is None:
                    self._blobs = await self._make_blobs()
        return self._blobs[reading]

    async def _connect_aws(self) -> "AwsSession":
        """aiobotocore's session and client, made on first use."""
        if self._aws is None:
            async with self._lock:
                await self._make_aws()
        assert self._aws is not None
        return self._aws

    async def _make_blobs(self) -> tuple[Blobs, Blobs]:
        address = self._address
        endpoint, region = address.endpoint, address.region or _region_of_environment()
        aws = None
        if address.access_key is None or endpoint is None or region is None:
            aws = await self._make_aws()
            endpoint, region = aws.endpoint, aws.region
        try:
            writes, reads = [
                _make_blobs(
                    address, aws, endpoint, region, path_style=self._path_style, options=more
                )
                for more in ({}, {"read_timeout": timedelta(seconds=REQUEST_SECONDS_MAX)})
            ]
        except (BaseError, OSError, ValueError) as error:
            raise StoreRefusedError(
                f"the S3 client cannot be set up: {error}", fault=FaultCode.WRONG_VALUE
            ) from error
        return writes, reads

    async def _make_aws(self) -> "AwsSession":
        """`_lock` is held."""
        if self._aws is not None:
            return self._aws
        # Off the loop, as far as Python lets it.
        await asyncio.to_thread(importlib.import_module, "storage.stores.s3_session")
        from storage.stores.s3_session import AwsError, AwsSession

        address = self._address
        key, secret = address.access_key, address.secret_key
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        telling = loop.call_later(TELL_SECONDS, self._tell_of_search)
        try:
            self._aws = await AwsSession.open(
                keys=None if key is None or secret is None else (key, secret),
                region=address.region,
                region_default=REGION_DEFAULT,
                endpoint=address.endpoint,
                ca_file=str(address.ca_file) if address.ca_file else None,
                path_style=self._path_style,
                seconds_max=(CONNECT_SECONDS_MAX, REQUEST_SECONDS_MAX),
                retries_max=RETRIES_MAX,
            )
        except AwsError as error:
            sentence = f"the way into {self._place()} is shut: {error}"
            if not error.credentials and self._is_silent_for_long(begun_s):
                raise StoreRefusedError(
                    f"{sentence}, for {CREDENTIALS_SECONDS_MAX:.0f} s now; set access key and secret key, or what"
                    " AWS's own tools would look for",
                    fault=FaultCode.STORE_DENIED,
                ) from error
            # It may pass, as a store does that is away: who has them is another service.
            raise StoreUnavailableError(sentence) from error
        except ValueError as error:
            raise StoreRefusedError(
                f"the S3 client cannot be set up: {error}", fault=FaultCode.WRONG_VALUE
            ) from error
        finally:
            telling.cancel()
        assert self._aws is not None
        return self._aws

    def _is_silent_for_long(self, begun_s: float) -> bool:
        """Nobody has said whether there are credentials, who was asked from `begun_s` on and before."""
        if self._silent_since_s is None:
            self._silent_since_s = begun_s
        now_s = asyncio.get_running_loop().time()
        return now_s - self._silent_since_s >= CREDENTIALS_SECONDS_MAX

    def _tell_of_search(self) -> None:
        if self._has_told:
            return
        self._has_told = True
        logger.warning(
            "waiting for the credentials of %s: whoever has them (the machine's metadata service, the"
            " container's, or STS) has not answered yet",
            self._place(),
        )

    @property
    def _path_style(self) -> bool:
        given = self._address.path_style
        return self._address.endpoint is not None if given is None else given

    def _error_of_aws(self, doing: str, error: "AwsError") -> StoreError:
        if not error.credentials:
            return self._no_credentials(doing)
        if not error.status and not error.code:
            return StoreUnavailableError(f"{doing} in {self._place()}: {error}")
        return self._error(doing, error.status, error.code, str(error))

    def _missing(self, key: str, error: FileNotFoundError) -> NoReturn:
        """Raise the error for a 404 to a GET: of the object, or of the whole bucket."""
        code = _CODE.search(str(error))
        if code and code[1] == "NoSuchBucket":
            self._fail(f"getting {key}", error)
        raise ObjectNotFoundError(f"{key} is not in {self._place()}") from error

    def _fail(self, doing: str, error: Exception) -> NoReturn:
        """Raise the store's error for one of obstore's."""
        text = str(error)
        code = _CODE.search(text)
        if isinstance(error, UnauthenticatedError) and _NO_CREDENTIALS in text:
            raise self._no_credentials(doing) from error
        message = _MESSAGE.search(text)
        raise self._error(
            doing,
            _status_of(error),
            code[1] if code else "",
            html.unescape(message[1]) if message else _cause_of(text),
        ) from error

    def _no_credentials(self, doing: str) -> StoreRefusedError:
        return StoreRefusedError(
            f"{doing} in {self._place()}: no credentials were found; set access key and secret "
            "key, or what AWS's own tools would look for",
            fault=FaultCode.STORE_DENIED,
        )

    def _error(self, doing: str, status: int, code: str, message: str) -> StoreError:
        """The store's error for an answer; status 0 when there was none."""
        sentence = ", ".join(filter(None, (code, message))) or f"status {status}"
        place = f"{doing} in {self._place()}: {sentence}"
        if code == "NoSuchBucket":
            return StoreRefusedError(
                f"{place} (create the bucket first)", fault=FaultCode.STORE_DENIED
            )
        if code == "NotImplemented":
            return StoreRefusedError(
                f"{place} (use a server that has what is asked for: conditional writes and checksums)",
                fault=FaultCode.STORE_DENIED,
            )
        passing = status >= 500 or status in _PASSING_STATUS or code in _PASSING_CODES
        if passing or (not status and not code):
            return StoreUnavailableError(place)
        if code in _SKEW_CODES:
            return StoreRefusedError(f"{place} (set up NTP)", fault=FaultCode.CLOCK_SKEW)
        if status in {401, 403} or code in {"AccessDenied", "InvalidAccessKeyId"}:
            refused = _DeniedError if code == "AccessDenied" else StoreRefusedError
            return refused(
                f"{place} (check the credentials and what they permit)",
                fault=FaultCode.STORE_DENIED,
            )
        return StoreRefusedError(place, fault=FaultCode.STORE_DENIED)

    def _place(self) -> str:
        where = self._address.endpoint
        return f"bucket {self._address.bucket}" + (f" at {where}" if where else "")


def _make_blobs(
    address: S3Address,
    aws: "AwsSession | None",
    endpoint: str,
    region: str,
    *,
    path_style: bool,
    options: dict[str, Any],
) -> Blobs:
    """obstore's client, with the address's keys, or the credentials that AWS's tools find; `options`: more
    of the HTTP client's."""
    url = urlsplit(endpoint)
    if not path_style:
        endpoint = f"{url.scheme}://{address.bucket}.{url.netloc}"
    options = options | {
        "allow_http": url.scheme == "http",
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS_MAX),
        # It knows no bound by bytes: each call has its own (`_within`), which ends the request.
        "timeout": timedelta(seconds=REQUEST_SECONDS_MAX + moving_s(OBJECT_BYTES_MAX)),
        "pool_max_idle_per_host": str(IDLE_CONNECTIONS_MAX),
    }
    if address.ca_file is not None:
        options["root_certificate"] = address.ca_file.read_bytes()
    config: dict[str, Any] = {
        "endpoint": endpoint,
        "region": region,
        "virtual_hosted_style_request": not path_style,
        "unsigned_payload": True,
        "conditional_put": "etag",
    }
    if address.access_key is not None:
        config |= {"access_key_id": address.access_key, "secret_access_key": address.secret_key}
    provider: Any = aws.credentials if aws is not None and address.access_key is None else None
    if address.checksum is not None:
        config["checksum_algorithm"] = address.checksum
    return Blobs(
        address.bucket,
        config=config,  # type: ignore[arg-type]
        client_options=options,  # type: ignore[arg-type]
        retry_config={
            "max_retries": RETRIES_MAX,
            "retry_timeout": timedelta(seconds=REQUEST_SECONDS_MAX / 2),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
        credential_provider=provider,
    )


@contextlib.asynccontextmanager
async def _within(byte_count: int = 0) -> AsyncIterator[None]:
    """Bound a call that moves so many bytes. Raises TimeoutError, which is an OSError."""
    seconds = REQUEST_SECONDS_MAX + moving_s(byte_count)
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TimeoutError(f"it did not end within {seconds:.0f} s") from error


def _region_of_environment() -> str | None:
    """The region as botocore finds it; None where its files and profiles would have to be read."""
    if "AWS_PROFILE" in os.environ or "AWS_DEFAULT_PROFILE" in os.environ:
        return None
    if region := os.environ.get("AWS_DEFAULT_REGION"):
        return region
    config = Path(os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser()
    return None if config.exists() else REGION_DEFAULT


def _is_strange_name(error: Exception) -> bool:
    """Whether a listing met a key that is nobody's of ours, and that obstore has no form for."""
    return not _status_of(error) and "invalid path" in str(error)


def _status_of(error: Exception) -> int:
    """The HTTP status in the words of obstore; 0 when no answer came."""
    text = str(error)
    if found := _STATUS.search(text):
        return int(found[1])
    # obstore reports these two without the status; both will not change by repeating.
    return 301 if "incorrectly configured region" in text or "non-partial" in text else 0


def _cause_of(text: str) -> str:
    """What obstore says went wrong, in one line."""
    sentence, _, debug = text.partition("\n\nDebug source:")
    if certificate := _CERTIFICATE.search(debug):
        return f"its certificate is not trusted ({certificate[1]})"
    causes = ["".join(pair) for pair in _CAUSE.findall(debug)]
    return f"{sentence} ({causes[-1]})" if causes else sentence
