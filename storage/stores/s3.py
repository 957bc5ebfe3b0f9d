"""An object store in an S3 bucket: aiobotocore for what is rare, obstore for bytes.

obstore moves bytes off the event loop without copying them; aiobotocore finds and refreshes
credentials, lists and deletes. Created on first use, so that an agent starts without the store.

An object is created by a PUT with If-None-Match. If one is there already, as after an answer
that was lost, its bytes are compared: the same are success. Each PUT carries a CRC-64/NVME that
the store verifies; the payload is not signed (SHA-256 would cost 2.5 ms per MiB).

Errors are told apart by status: 5xx, 408, 425 and 429, broken connections and expired tokens
may pass (StoreUnavailableError), other answers will not (StoreRefusedError). Retries are few and
short; who needs the call done repeats it. What the answer to a deletion says of one key is said of
that key alone; and where nothing may be deleted, each object is refused.
"""

import asyncio
import html
import re
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import urlsplit

import obstore
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from obstore.exceptions import AlreadyExistsError, BaseError, UnauthenticatedError
from obstore.store import S3Store as Blobs

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
from storage.stores.s3_credentials import FileCredentials, follow_files

Result = TypeVar("Result")

CONNECT_SECONDS_MAX: Final = 3.0
REQUEST_SECONDS_MAX: Final = 30.0
RETRIES_MAX: Final = 2
IDLE_CONNECTIONS_MAX: Final = 64
REGION_DEFAULT: Final = "us-east-1"

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
_ALWAYS_ASK: Final = datetime.fromtimestamp(0, UTC)
"""An end that makes obstore ask for credentials with every request."""
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


@dataclass(frozen=True, slots=True)
class _Connection:
    blobs: Blobs
    client: Any
    """aiobotocore's S3 client, which has no types."""


class S3Store:
    """An `ObjectStore` in one bucket, under a prefix."""

    def __init__(self, address: S3Address) -> None:
        self._address = address
        self._prefix = address.prefix + "/" if address.prefix else ""
        self._lock = asyncio.Lock()
        self._resources = AsyncExitStack()
        self._connection: _Connection | None = None

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        check_key(key)
        blobs = (await self._connect()).blobs
        body = [part for part in parts if len(part)]
        try:
            # A list of buffers is sent as it is; multipart could not be conditional in one step.
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
        blobs = (await self._connect()).blobs
        try:
            answer = await obstore.get_async(blobs, self._prefix + key)
            return memoryview(await answer.bytes_async())
        except FileNotFoundError as error:
            self._missing(key, error)
        except (BaseError, OSError) as error:
            self._fail(f"getting {key}", error)

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        check_range(key, start, length)
        blobs = (await self._connect()).blobs
        try:
            data = memoryview(
                await obstore.get_range_async(blobs, self._prefix + key, start=start, length=length)
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
        client = (await self._connect()).client
        after = {"StartAfter": self._prefix + start_after} if start_after else {}
        while True:
            answer = await self._rare(
                "listing",
                client.list_objects_v2(
                    Bucket=self._address.bucket,
                    Prefix=self._prefix + prefix,
                    MaxKeys=PAGE_OBJECTS_MAX,
                    **after,
                ),
            )
            page = [self._info(row) for row in answer.get("Contents", ())]
            if page or not answer.get("IsTruncated"):
                return page
            # A page may be empty although more follow; to the caller empty is the end.
            after = {"ContinuationToken": answer["NextContinuationToken"]}

    def _info(self, row: dict[str, Any]) -> ObjectInfo:
        modified: datetime = row["LastModified"]
        key = str(row["Key"]).removeprefix(self._prefix)
        return ObjectInfo(key, int(row["Size"]), int(modified.timestamp() * 1000))

    async def delete(self, keys: Sequence[str]) -> Sequence[DeleteRefusal]:
        for key in keys:
            check_key(key)
        once = list(dict.fromkeys(keys))
        refused: list[DeleteRefusal] = []
        for at in range(0, len(once), PAGE_OBJECTS_MAX):
            refused += await self._delete(once[at : at + PAGE_OBJECTS_MAX])
        return refused

    async def _delete(self, keys: Sequence[str]) -> list[DeleteRefusal]:
        client = (await self._connect()).client
        names = [{"Key": self._prefix + key} for key in keys]
        try:
            answer = await self._rare(
                "deleting",
                client.delete_objects(
                    Bucket=self._address.bucket, Delete={"Objects": names, "Quiet": True}
                ),
            )
        except _DeniedError as denied:
            return [DeleteRefusal(key, str(denied)) for key in keys]
        refused = []
        for failure in answer.get("Errors", ()):
            code, message = (str(failure.get(name, "")) for name in ("Code", "Message"))
            if code != "NoSuchKey":
                key = str(failure.get("Key")).removeprefix(self._prefix)
                refused.append(DeleteRefusal(key, ", ".join(filter(None, (code, message)))))
        return refused

    async def aclose(self) -> None:
        async with self._lock:
            self._connection = None
            await self._resources.aclose()

    async def _connect(self) -> _Connection:
        """The clients, made on first use."""
        if self._connection is None:
            async with self._lock:
                if self._connection is None:
                    self._connection = await self._make_clients()
        return self._connection

    async def _make_clients(self) -> _Connection:
        address = self._address
        session = get_session()
        if address.access_key is not None:
            session.set_credentials(address.access_key, address.secret_key)
        region = address.region or session.get_config_variable("region") or REGION_DEFAULT
        path_style = address.path_style
        if path_style is None:
            path_style = address.endpoint is not None
        config = AioConfig(
            connect_timeout=CONNECT_SECONDS_MAX,
            read_timeout=REQUEST_SECONDS_MAX,
            retries={"total_max_attempts": 1 + RETRIES_MAX, "mode": "standard"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if path_style else "virtual"},
        )
        try:
            if address.access_key is None:
                await follow_files(session)
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(
                    session.create_client(
                        "s3",
                        region_name=region,
                        endpoint_url=address.endpoint,
                        verify=str(address.ca_file) if address.ca_file else None,
                        config=config,
                    )
                )
                endpoint = str(client.meta.endpoint_url)
                blobs = _make_blobs(address, session, endpoint, region, path_style=path_style)
                # Both are there; what failed before is released by now.
                self._resources = stack.pop_all()
        except (BotoCoreError, BaseError, OSError, ValueError) as error:
            raise StoreRefusedError(f"the S3 client cannot be set up: {error}") from error
        return _Connection(blobs, client)

    async def _rare(self, doing: str, call: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Await a call of aiobotocore and turn its errors into the store's."""
        try:
            return await call
        except ClientError as error:
            answer = error.response
            status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            detail = answer.get("Error", {})
            raise self._error(
                doing, status, str(detail.get("Code", "")), str(detail.get("Message", ""))
            ) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise self._no_credentials(doing) from error
        except (BotoCoreError, OSError, TimeoutError) as error:
            raise StoreUnavailableError(f"{doing} in {self._place()}: {error}") from error

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
        if isinstance(error, UnauthenticatedError) and NoCredentialsError.__name__ in text:
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
            "key, or what AWS's own tools would look for"
        )

    def _error(self, doing: str, status: int, code: str, message: str) -> StoreError:
        """The store's error for an answer; status 0 when there was none."""
        sentence = ", ".join(filter(None, (code, message))) or f"status {status}"
        place = f"{doing} in {self._place()}: {sentence}"
        if code == "NoSuchBucket":
            return StoreRefusedError(f"{place} (create the bucket first)")
        passing = status >= 500 or status in _PASSING_STATUS or code in _PASSING_CODES
        if passing or (not status and not code):
            return StoreUnavailableError(place)
        if status in {401, 403} or code in {"AccessDenied", "InvalidAccessKeyId"}:
            refused = _DeniedError if code == "AccessDenied" else StoreRefusedError
            return refused(f"{place} (check the credentials and what they permit)")
        return StoreRefusedError(place)

    def _place(self) -> str:
        where = self._address.endpoint
        return f"bucket {self._address.bucket}" + (f" at {where}" if where else "")


def _make_blobs(
    address: S3Address, session: AioSession, endpoint: str, region: str, *, path_style: bool
) -> Blobs:
    """obstore's client, with aiobotocore's credentials."""

    async def provide() -> Any:
        credentials = await session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        frozen = await credentials.get_frozen_credentials()
        # Only credentials that expire have it, and botocore tells nobody else.
        expiry: datetime | None = getattr(credentials, "_expiry_time", None)
        if isinstance(credentials, FileCredentials):
            expiry = _ALWAYS_ASK
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            # obstore asks again 5 minutes before, and botocore renews 10 minutes before.
            "expires_at": expiry and expiry.astimezone(UTC),
        }

    url = urlsplit(endpoint)
    if not path_style:
        endpoint = f"{url.scheme}://{address.bucket}.{url.netloc}"
    options: dict[str, Any] = {
        "allow_http": url.scheme == "http",
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS_MAX),
        "timeout": timedelta(seconds=REQUEST_SECONDS_MAX),
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
        credential_provider=provide,
    )


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
