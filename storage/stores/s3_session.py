"""An S3 bucket by AWS's own tools: credentials that are found, deletions, listings by the beginnings of names.

aiobotocore takes 0.2 s of CPU to import and as much to make its client, so nobody imports this module
before it is needed (`storage.stores.s3`), and what can be done in a thread is done there.

What holds: errors leave as `AwsError`, which says what the answer was; the caller makes its own of it.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, Self

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.parsers import ResponseParserError

from storage.stores.instance_metadata import silent_service
from storage.stores.s3_credentials import FileCredentials, follow_files

FIND_SECONDS_MAX: Final = 20.0
"""For who has the credentials. AWS's tools themselves would wait for minutes for some."""

_ALWAYS_ASK: Final = datetime.fromtimestamp(0, UTC)
"""An end that makes obstore ask for credentials with every request."""
_ROW_FIELDS: Final = {"Key", "Size", "LastModified"}
_MODELS: Final = ("service-2", "endpoint-rule-set-1")
"""Descriptions of S3 that a client is made from: a megabyte of JSON."""


class AwsError(Exception):
    """A call failed. `status`: of the answer, 0 when there was none; `credentials`: whether there
    were any."""

    def __init__(
        self, message: str, *, status: int = 0, code: str = "", credentials: bool = True
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.credentials = credentials


class AwsSession:
    """A session and its S3 client; `open` makes it."""

    def __init__(self, session: AioSession, client: Any, resources: AsyncExitStack) -> None:
        self._session = session
        self._client = client
        """It has no types."""
        self._resources = resources
        self.endpoint = str(client.meta.endpoint_url)
        self.region = str(client.meta.region_name)

    @classmethod
    async def open(
        cls,
        *,
        keys: tuple[str, str] | None,
        region: str | None,
        region_default: str,
        endpoint: str | None,
        ca_file: str | None,
        path_style: bool,
        seconds_max: tuple[float, float],
        retries_max: int,
    ) -> Self:
        """`keys`: None has them found; `region_default`: when nobody says it; `seconds_max`: to
        connect, and to wait for bytes.

        Raises ValueError, with a sentence, and AwsError when who has the credentials does not answer; without
        `credentials` where nothing but the silence of the machine's metadata service says that there are any.
        """
        session = await asyncio.to_thread(_session)
        if keys is not None:
            session.set_credentials(*keys)
        connect_s, read_s = seconds_max
        config = AioConfig(
            connect_timeout=connect_s,
            read_timeout=read_s,
            retries={"total_max_attempts": 1 + retries_max, "mode": "standard"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if path_style else "virtual"},
        )
        try:
            if keys is None:
                await _find_credentials(session)
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(
                    session.create_client(
                        "s3",
                        region_name=region
                        or session.get_config_variable("region")
                        or region_default,
                        endpoint_url=endpoint,
                        verify=ca_file,
                        config=config,
                    )
                )
                return cls(session, client, stack.pop_all())
        except CredentialRetrievalError as error:
            raise AwsError(str(error)) from error
        except (BotoCoreError, OSError, ssl.SSLError) as error:
            raise ValueError(str(error)) from error

    async def credentials(self) -> dict[str, Any]:
        """What obstore asks its credential provider for. Raises NoCredentialsError, whose name is
        in the text of obstore's error then, and AwsError, whose sentence is."""
        credentials, frozen = await self._find()
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

    async def _find(self) -> tuple[Any, Any]:
        """The credentials, and as they are now. Raises NoCredentialsError, BotoCoreError and AwsError."""
        async with _found_in_time():
            credentials = await self._session.get_credentials()
            if credentials is None:
                raise NoCredentialsError
            # Only now some are asked for: a role's of STS, say.
            return credentials, await credentials.get_frozen_credentials()

    async def list(
        self, bucket: str, prefix: str, start_after: str, objects_max: int
    ) -> Sequence[dict[str, Any]]:
        """A page of rows with Key, Size and LastModified; empty at the end. Raises AwsError."""
        after = {"StartAfter": start_after} if start_after else {}
        while True:
            answer = await self._answered(
                self._client.list_objects_v2,
                Bucket=bucket,
                Prefix=prefix,
                MaxKeys=objects_max,
                **after,
            )
            page: Sequence[dict[str, Any]] = answer.get("Contents", ())
            if any(not row.keys() >= _ROW_FIELDS for row in page):
                raise AwsError("the answer is no listing: rows of it say too little")
            if page or not answer.get("IsTruncated"):
                return page
            # A page may be empty although more follow; to the caller empty is the end.
            if not (token := answer.get("NextContinuationToken")):
                raise AwsError("the answer is no listing: it goes on and does not say where")
            after = {"ContinuationToken": token}

    async def delete(self, bucket: str, keys: Sequence[str]) -> Sequence[dict[str, Any]]:
        """Of the keys that are still there a row with Key, Code and Message. Raises AwsError."""
        names = [{"Key": key} for key in keys]
        answer = await self._answered(
            self._client.delete_objects,
            Bucket=bucket,
            Delete={"Objects": names, "Quiet": True},
        )
        failures: Sequence[dict[str, Any]] = answer.get("Errors", ())
        return failures

    async def _answered(
        self, call: Callable[..., Awaitable[dict[str, Any]]], **arguments: Any
    ) -> dict[str, Any]:
        """Make a call of aiobotocore. Raises AwsError."""
        try:
            # The call would wait for them for minutes.
            await self._find()
            return await call(**arguments)
        except ClientError as error:
            detail = error.response.get("Error", {})
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            raise AwsError(
                str(detail.get("Message", "")), status=int(status), code=str(detail.get("Code", ""))
            ) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise AwsError(str(error), credentials=False) from error
        except (BotoCoreError, OSError, TimeoutError) as error:
            raise AwsError(str(error)) from error
        except (ResponseParserError, ValueError) as error:
            # Of a proxy's page, say.
            raise AwsError(f"the answer is not S3's: {str(error).splitlines()[0]}") from error

    async def aclose(self) -> None:
        await self._resources.aclose()


@asynccontextmanager
async def _found_in_time() -> AsyncIterator[None]:
    """Raises AwsError."""
    try:
        async with asyncio.timeout(FIND_SECONDS_MAX):
            yield
    except TimeoutError as error:
        raise AwsError(
            f"whoever has the credentials did not answer within {FIND_SECONDS_MAX:.0f} s"
        ) from error


async def _find_credentials(session: AioSession) -> None:
    """Have AWS's tools find them, or find that there are none. Raises AwsError, BotoCoreError."""
    async with _found_in_time():
        found = await follow_files(session)
    if not found and (url := await silent_service(session)):
        raise AwsError(
            "no credentials were found in environment and files, and the machine's metadata service"
            f" at {url} does not answer",
            credentials=False,
        )


def _session() -> AioSession:
    """A session that has read what its client is made from."""
    session = get_session()
    loader = session.get_component("data_loader")
    for model in _MODELS:
        loader.load_service_model("s3", model)
    return session
