"""The tools' client of an agent's admin listener: one request, and its JSON or a sentence.

Left out: what the lines of a stream say (`broker.cli.log.log_tail`), waiting for what may work later.
"""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from broker.cli.command_result import ToolError
from protocol.fault_codes import FaultCode

TIMEOUT_S: Final = 30.0


class AgentPlace(NamedTuple):
    """Where an agent's admin listener is, and what it wants to hear."""

    url: str
    token: str | None = None
    context: ssl.SSLContext | None = None
    """Whom to trust behind https; None: whom the system trusts."""


def ask(
    agent: AgentPlace, path: str, *, method: str = "GET", body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The object that the agent answers. Raises ToolError."""
    try:
        with opened(agent, path, method=method, body=body, timeout_s=TIMEOUT_S) as response:
            return parsed(response.read())
    except urllib.error.HTTPError as error:
        raise refusal(error, f"{agent.url} answers {error.code}: {error.reason}") from error
    except ValueError as error:
        raise ToolError(_NO_AGENT) from error


@contextmanager
def opened(
    agent: AgentPlace,
    path: str,
    *,
    method: str = "GET",
    body: dict[str, Any] | None = None,
    timeout_s: float | None,
) -> Iterator[http.client.HTTPResponse]:
    """The agent's answer, to be read. Raises ToolError, and HTTPError when it is an error."""
    url, token, context = agent
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise ToolError(f'"{url}" is not an address like http://127.0.0.1:9094')
    # Only http and https get here.
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url.rstrip("/") + path, data, method=method)  # noqa: S310
    if data is not None:
        request.add_header("Content-Type", "application/json")
    if token is not None:
        # Not sent on to wherever an answer might point.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(  # noqa: S310
            request, timeout=timeout_s, context=context
        ) as response:
            yield response
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        tls = FaultCode.TLS_FAILED
        if isinstance(reason, ssl.SSLCertVerificationError):
            said = f"the certificate of {url} is not trusted ({reason.verify_message})"
            raise ToolError(f"{said}: --ca-file names who signed it", fault=tls) from error
        if isinstance(reason, ssl.SSLError) and "ALERT" in (reason.reason or ""):
            told = reason.reason.replace("_", " ").lower()
            said = f"{url} refuses: {told} (--cert-file is what one shows)"
            raise ToolError(said, fault=tls) from error
        raise ToolError(
            f"no agent answers at {url} ({reason}): is one running? (--agent says where)",
            fault=tls if isinstance(reason, ssl.SSLError) else FaultCode.CLUSTER_UNREACHABLE,
        ) from error


def parsed(raw: bytes) -> dict[str, Any]:
    """The JSON object that an agent sent. Raises ToolError."""
    try:
        answer = json.loads(raw)
    except ValueError as error:
        raise ToolError(_NO_AGENT) from error
    if not isinstance(answer, dict):
        raise ToolError(_NO_AGENT)
    return answer


_NO_AGENT: Final = "the answer is not an agent's: is the address its http listener?"


def refusal(error: urllib.error.HTTPError, otherwise: str) -> ToolError:
    """What the agent says itself, with its code; `otherwise` if it is none."""
    try:
        said = json.loads(error.read())
        fault = FaultCode(said["code"]) if "code" in said else None
        return ToolError(str(said["error"]), fault=fault)
    except (ValueError, LookupError, TypeError):
        return ToolError(otherwise)
