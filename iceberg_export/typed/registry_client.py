"""The schema registry as the exporter uses it: schemas by id and by subject, read once each.

Confluent's REST API, which the agents' own registry speaks as well. What has been read is kept
for the life of the client: an id never means another schema. A registry that is away, or refuses
the credentials, ends the run in one sentence; only its clear "there is no such id" counts as an
answer, so no record becomes a dead letter because of a network.
"""

import base64
import json
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from typing_extensions import override

from iceberg_export.errors import ExportError, SettingsError
from iceberg_export.settings import token_in
from iceberg_export.tls_files import REGISTRY, TlsFiles
from iceberg_export.typed.types import Schema

ROUNDS = 3
PAUSE_S = 1.0
REFERENCES_DEEP_MAX = 32
VERSIONS_MAX = 1000
"""That are read before a record names them: each takes a request, in every run."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024
RETRIABLE_STATUS = frozenset({429, 500, 502, 503, 504})
_MEDIA_TYPES = "application/vnd.schemaregistry.v1+json, application/json"
_SUBJECT_UNKNOWN = 40401
_VERSION_UNKNOWN = 40402
_SCHEMA_UNKNOWN = 40403


class _NoRedirects(HTTPRedirectHandler):
    """Credentials go to the address that was set, and nowhere else."""

    @override
    def redirect_request(self, *_arguments: Any) -> None:
        return None


class RegistryError(ExportError):
    """The schema registry does not answer, or not as one."""


class RegistryClient:
    """Asks whichever address answers. `sleep` waits seconds between rounds."""

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        told: Callable[[], str],
        sleep: Callable[[float], None],
    ) -> None:
        """`settings` are the exporter's, `schema.registry.*` among them. `told` says where the agents
        have a registry, or raises; it is called when there is something to ask, and
        `schema.registry.url` is not set, and again whenever nobody answers there: another agent may
        tell another address. Raises SettingsError."""
        given = {name: settings[name].strip() for name in settings if name.startswith("schema.")}
        self._addresses = [
            one.strip().rstrip("/")
            for one in given["schema.registry.url"].split(",")
            if one.strip()
        ]
        self._told = told
        self._are_told = not self._addresses
        for address in self._addresses:
            if urlsplit(address).scheme not in {"http", "https"} or not urlsplit(address).netloc:
                raise SettingsError(
                    f"schema.registry.url {address!r} is not an address like http://host:8081"
                )
        self._given = given
        _authorization(given)  # Mistakes are told before the first request.
        self._timeout_s = int(given["schema.registry.timeout.ms"]) / 1000
        context = TlsFiles(given, REGISTRY).context()
        self._open = build_opener(_NoRedirects, HTTPSHandler(context=context)).open
        self._sleep = sleep
        self._by_id: dict[int, Schema | None] = {}
        self._by_version: dict[tuple[str, int], Schema] = {}
        self._references: dict[tuple[str, int], Any] = {}

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema of that id; None when the registry says that there is none."""
        if schema_id not in self._by_id:
            found = self._call(f"/schemas/ids/{schema_id}", {_SCHEMA_UNKNOWN})
            self._by_id[schema_id] = None if found is None else self._schema(schema_id, found)
        return self._by_id[schema_id]

    def by_guid(self, guid: str) -> Schema | None:
        """The schema that record headers name so; None when the registry knows no id of it."""
        path = f"/schemas/guids/{quote(guid, safe='')}"
        found = self._call(path, {_SCHEMA_UNKNOWN})
        if found is None:
            return None
        if "id" not in found:
            # A GUID is the same in all contexts of a registry, ids are not.
            ids = self._call(f"{path}/ids", {_SCHEMA_UNKNOWN}) or []
            here = [one for one in ids if one.get("context", ".") == "."]
            if not here:
                return None
            found = found | here[0]
        return self._kept(found)

    def latest(self, subject: str) -> Schema | None:
        """The newest version of a subject; None when it has none."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        found = self._call(path, {_SUBJECT_UNKNOWN, _VERSION_UNKNOWN})
        return None if found is None else self._kept(found)

    def versions(self, subject: str) -> list[Schema]:
        """The newest VERSIONS_MAX of a subject, oldest first; none when there is no such subject."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        numbers = self._call(path, {_SUBJECT_UNKNOWN})
        if not isinstance(numbers, list):
            return []
        schemas = []
        for number in sorted(numbers)[-VERSIONS_MAX:]:
            kept = self._by_version.get((subject, number))
            if kept is None:
                found = self._call(f"{path}/{number}", {_SUBJECT_UNKNOWN, _VERSION_UNKNOWN})
                if found is None:
                    continue  # Deleted just now.
                kept = self._by_version[subject, number] = self._kept(found)
            schemas.append(kept)
        return schemas

    def _kept(self, found: Mapping[str, Any]) -> Schema:
        """A schema that was told with its id."""
        schema_id = _number(found, "id")
        schema = self._by_id.get(schema_id) or self._schema(schema_id, found)
        self._by_id[schema_id] = schema
        return schema

    def _schema(self, schema_id: int, found: Mapping[str, Any]) -> Schema:
        references: dict[str, str] = {}
        self._gather(found, references, deep=0)
        # The registry leaves the kind out when it is Avro.
        guid = str(found.get("guid") or "")
        return Schema(schema_id, _kind(found), _text(found), references, guid)

    def _gather(self, found: Mapping[str, Any], into: dict[str, str], *, deep: int) -> None:
        """Texts of all that a schema refers to, those that others need first."""
        if deep > REFERENCES_DEEP_MAX:
            raise RegistryError("a schema's references go round in circles")
        for one in found.get("references") or ():
            name, subject, version = str(one["name"]), str(one["subject"]), int(one["version"])
            if name in into:
                continue
            if (subject, version) not in self._references:
                # A version that was deleted after it was referred to is still meant.
                path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
                self._references[subject, version] = self._call(
                    path, {_SUBJECT_UNKNOWN, _VERSION_UNKNOWN}
                )
            referred = self._references[subject, version]
            if referred is None:
                raise RegistryError(
                    f"the schema registry has lost version {version} of subject {subject}, "
                    f"which other schemas refer to as {name}"
                )
            self._gather(referred, into, deep=deep + 1)
            into[name] = _text(referred)

    def _call(self, path: str, absent: set[int]) -> Any:
        """The answer's JSON; None for an error whose code is in `absent`. Raises ExportError."""
        failures: dict[str, str] = {}
        for attempt in range(ROUNDS):
            if attempt:
                self._sleep(PAUSE_S * attempt)
            if self._are_told and (attempt or not self._addresses):
                self._addresses = [self._told().rstrip("/")]
            for address in self._addresses:
                try:
                    return self._once(address, path, absent)
                except _AwayError as error:
                    failures[address] = str(error)
        tried = "; ".join(f"{address}: {reason}" for address, reason in failures.items())
        raise RegistryError(
            f"no schema registry answers ({tried}); set schema.registry.url to a live one"
        )

    def _once(self, address: str, path: str, absent: set[int]) -> Any:
        headers = {"Accept": _MEDIA_TYPES}
        request = Request(address + path, headers=headers)  # noqa: S310 - checked above.
        for name, said in _authorization(self._given).items():
            request.add_unredirected_header(name, said)
        try:
            with self._open(request, timeout=self._timeout_s) as response:
                body = response.read(ANSWER_BYTES_MAX + 1)
        except HTTPError as error:
            return _refused(address, path, error, absent)
        except (URLError, HTTPException, OSError, UnicodeError) as error:
            # (The last of a name that can be nobody's, like a..b.)
            reason = getattr(error, "reason", error)
            raise _AwayError(str(getattr(reason, "strerror", None) or reason)) from error
        if len(body) > ANSWER_BYTES_MAX:
            raise _not_one(address)
        if response.length:
            # With a bound `read` returns what came before the connection ended, without a word.
            raise _AwayError("its answer broke off")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _not_one(address) from error


class _AwayError(Exception):
    """This address cannot answer now."""


def _not_one(address: str) -> RegistryError:
    return RegistryError(
        f"{address} does not answer like a schema registry; is schema.registry.url right?"
    )


def _refused(address: str, path: str, error: HTTPError, absent: set[int]) -> None:
    """None when the registry says that what was asked for does not exist; raises otherwise."""
    try:
        answer = json.loads(error.read(ERROR_BYTES_MAX))
        code, message = int(answer["error_code"]), str(answer.get("message", ""))
    except (ValueError, TypeError, KeyError, RecursionError):
        code, message = 0, str(error.reason)
    if error.code in RETRIABLE_STATUS:
        raise _AwayError(f"HTTP {error.code} {message}".strip()) from error
    if code in absent:
        return
    if error.code in {401, 403}:
        raise RegistryError(
            f"schema registry {address} refuses the credentials ({message}); set "
            "schema.registry.basic.auth.user.info or schema.registry.bearer.auth.token"
        ) from error
    if not code:
        raise _not_one(address) from error
    raise RegistryError(f"schema registry {address} refuses {path}: {message}") from error


def _authorization(given: Mapping[str, str]) -> dict[str, str]:
    user_info = given["schema.registry.basic.auth.user.info"]
    token = token_in(given, "schema.registry.bearer.auth.token")
    if user_info and token:
        raise SettingsError(
            "schema.registry.basic.auth.user.info and schema.registry.bearer.auth.token "
            "cannot both be set"
        )
    if user_info:
        packed = base64.b64encode(user_info.encode()).decode()
        return {"Authorization": f"Basic {packed}"}
    return {"Authorization": f"Bearer {token}"} if token else {}


def _text(found: Mapping[str, Any]) -> str:
    try:
        return str(found["schema"])
    except (KeyError, TypeError) as error:
        raise RegistryError("the schema registry's answer has no schema in it") from error


def _kind(found: Mapping[str, Any]) -> str:
    return str(found.get("schemaType") or "AVRO").upper()


def _number(found: Mapping[str, Any], name: str) -> int:
    try:
        return int(found[name])
    except (KeyError, TypeError, ValueError) as error:
        raise RegistryError(f"the schema registry's answer has no {name} in it") from error
