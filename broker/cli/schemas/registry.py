"""A schema registry as the command line asks it: Confluent's REST API, which Frazil's own registry speaks, too.

What holds: an answer is JSON, or there is a sentence. Of several addresses the next is asked when one does not answer.
Logins go to the addresses that were set, and no redirect is followed. What the registry refuses is a `RefusedError`,
which whoever asked makes a sentence of; that it does not answer, or not to us, is a `ToolError`.
"""

import base64
import json
import ssl
from argparse import Namespace
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from typing_extensions import override

from broker.cli.arguments import FailedError, client_settings, complain, settings_file
from broker.cli.command_result import ToolError
from protocol.fault_codes import FaultCode

if TYPE_CHECKING:
    from broker.client.registry_settings import RegistrySettings

REGISTRY_DEFAULT: Final = "http://localhost:8081"
ANSWER_BYTES_MAX: Final = 256 << 20
ERROR_BYTES_MAX: Final = 1 << 20
TOKEN_BYTES_MAX: Final = 1 << 20
UNAUTHORIZED: Final = (401, 403)
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_AWAY: Final = frozenset({429, 500, 502, 503, 504})
"""It may answer later, or another one may now."""


class RefusedError(Exception):
    """The registry's answer is an error: its code, whose first three digits are HTTP's, and its sentence."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


class RegistryPlace(NamedTuple):
    """Where a registry is, and what it wants to hear."""

    urls: tuple[str, ...]
    authorization: str | None = None
    """A header's value."""
    context: ssl.SSLContext | None = None
    """Whom to trust behind https; None: whom the system trusts."""


class _NoRedirects(HTTPRedirectHandler):
    @override
    def redirect_request(self, *_arguments: Any) -> None:
        return None


class Registry:
    """One registry, as a command sees it."""

    def __init__(self, place: RegistryPlace, *, timeout_ms: int) -> None:
        """`timeout_ms`: how long it may be silent."""
        self._place = place
        self._timeout_s = timeout_ms / 1000
        handler = HTTPSHandler(context=place.context)
        self._opener: OpenerDirector = build_opener(_NoRedirects, handler)

    def object(
        self, path: str, *fields: str, method: str = "GET", body: Any = None
    ) -> dict[str, Any]:
        """Returns an answer that is an object with these fields. Raises RefusedError, ToolError."""
        return self._checked(self.ask(path, method=method, body=body), fields)

    def objects(self, path: str, *fields: str) -> list[dict[str, Any]]:
        """Returns an answer that is a list of objects with these fields. Raises RefusedError, ToolError."""
        return [self._checked(one, fields) for one in self.items(path)]

    def items(self, path: str) -> list[Any]:
        """Returns an answer that is a list. Raises RefusedError, ToolError."""
        found = self.ask(path)
        if not isinstance(found, list):
            raise _stranger(self._place.urls[0])
        return found

    def _checked(self, found: Any, fields: Sequence[str]) -> dict[str, Any]:
        if not isinstance(found, dict) or not found.keys() >= {*fields}:
            raise _stranger(self._place.urls[0])
        return found

    def ask(self, path: str, *, method: str = "GET", body: Any = None) -> Any:
        """Returns the JSON of an answer. Raises RefusedError, ToolError."""
        silent = []
        for url in self._place.urls:
            try:
                return self._asked(url, path, method, body)
            except _SilentError as error:
                silent.append(f"{url}: {error}")
        raise ToolError(
            f"no schema registry answers at {'; '.join(silent)}: is one running?"
            " (--registry says where)",
            fault=FaultCode.CLUSTER_UNREACHABLE,
        )

    def _asked(self, url: str, path: str, method: str, body: Any) -> Any:
        headers = {"Accept": f"{CONTENT_TYPE}, application/json"}
        if body is not None:
            headers["Content-Type"] = CONTENT_TYPE
        data = None if body is None else json.dumps(body).encode()
        # Only http and https get here.
        request = Request(f"{url}{path}", data=data, headers=headers, method=method)  # noqa: S310
        if self._place.authorization is not None:
            request.add_unredirected_header("Authorization", self._place.authorization)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                said = response.read(ANSWER_BYTES_MAX + 1)
        except HTTPError as error:
            raise _refusal(url, error) from error
        except (OSError, HTTPException) as error:
            raise _problem(url, error) from error
        try:
            if len(said) > ANSWER_BYTES_MAX:
                raise ValueError
            return json.loads(said)
        except (ValueError, RecursionError) as error:
            raise _stranger(url) from error


class _SilentError(Exception):
    """No answer from this address."""


def _stranger(url: str) -> ToolError:
    return ToolError(f"{url} does not answer like a schema registry (--registry says where one is)")


def _refusal(url: str, error: HTTPError) -> Exception:
    try:
        answer = json.loads(error.read(ERROR_BYTES_MAX))
        code, message = int(answer["error_code"]), str(answer.get("message") or "")
    except (OSError, HTTPException, ValueError, TypeError, LookupError, RecursionError):
        code, message = 0, str(error.reason)
    if error.code == UNAUTHORIZED[0]:
        return ToolError(
            f"{url} does not take this login, or wants one: basic.auth.user.info or bearer.auth.token.file in the file"
            " of --command-config",
            fault=FaultCode.LOGIN_FAILED,
        )
    if error.code == UNAUTHORIZED[1]:
        return ToolError(f"{url} does not allow it: {message}")
    if error.code in _AWAY:
        return _SilentError(f"{error.code} {message}".rstrip())
    return RefusedError(code, message) if code else _stranger(url)


def _problem(url: str, error: Exception) -> Exception:
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return ToolError(
            f"the certificate of {url} is not trusted ({reason.verify_message}):"
            " schema.registry.ssl.truststore.location says whom to trust",
            fault=FaultCode.TLS_FAILED,
        )
    if isinstance(reason, ssl.SSLError):
        told = (reason.reason or str(reason)).replace("_", " ").lower()
        sentence = f"there is no TLS with {url}: {told} (schema.registry.ssl.*)"
        return ToolError(sentence, fault=FaultCode.TLS_FAILED)
    if isinstance(reason, TimeoutError):
        return _SilentError("it is silent (--timeout-ms)")
    said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return _SilentError(str(said))


def registry_of(options: Namespace) -> Registry:
    """Returns the registry that the arguments and their file of settings mean. Raises FailedError, SettingsError."""
    file = settings_file(options)
    if file is None:
        place = RegistryPlace((options.registry or REGISTRY_DEFAULT,))
        return Registry(place, timeout_ms=options.timeout_ms)
    # What reads settings is imported only where there are any.
    found = client_settings(file)
    # A command about records tells what has no effect itself.
    if not hasattr(options, "property"):
        complain(options.name, *[f"{file}: {warning}" for warning in found.warnings])
    settings = found.registry
    urls = (options.registry,) if options.registry is not None else settings.urls
    place = RegistryPlace(
        urls or (REGISTRY_DEFAULT,), _authorization(settings), _context(settings, file)
    )
    return Registry(place, timeout_ms=options.timeout_ms)


def _context(settings: "RegistrySettings", file: Path) -> ssl.SSLContext | None:
    """Raises FailedError."""
    from broker.client.client_tls import client_context
    from broker.edge.key_stores import TlsError

    if settings.tls is None:
        return None
    try:
        return client_context(settings.tls)
    except TlsError as error:
        raise FailedError(f"{file}: schema.registry.{error}") from error


def _authorization(settings: "RegistrySettings") -> str | None:
    """Raises FailedError."""
    if settings.user_info is not None:
        return f"Basic {base64.b64encode(settings.user_info.encode()).decode()}"
    token = settings.token
    if settings.token_file is not None:
        token = _token_in(settings.token_file)
    return None if token is None else f"Bearer {token}"


def _token_in(name: str) -> str:
    """Raises FailedError."""
    from broker.client.registry_settings import TOKEN_FILE
    from broker.sasl.bearer_messages import is_token

    try:
        with Path(name).open("rb") as file:
            token = file.read(TOKEN_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError as error:
        raise FailedError(f"{TOKEN_FILE}: cannot read {name}: {error.strerror}") from error
    if not is_token(token):
        raise FailedError(f"{TOKEN_FILE}: there is no token in {name}")
    return token


def versions_path(subject: str, version: int | str | None = None) -> str:
    """Returns the path of a subject's versions, or of one of them."""
    path = f"/subjects/{quote(subject, safe='')}/versions"
    return path if version is None else f"{path}/{version}"


def type_of(found: Mapping[str, Any]) -> str:
    """Returns the type of a schema that the registry told; it leaves Avro out."""
    return str(found.get("schemaType") or "AVRO").upper()


def references_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns what a schema refers to: name, subject and version of each."""
    return [
        {"name": one["name"], "subject": one["subject"], "version": one["version"]}
        for one in found.get("references") or ()
    ]
