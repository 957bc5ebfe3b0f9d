"""`frazil log tail`: the metadata log, one entry after the other, readable or as JSON.

Asks an agent (its admin listener reads the log), since an embedded log belongs to its agent's
process. Left out: reading etcd without an agent.
"""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from broker.reports.log_lines import lines

TIMEOUT_S = 10.0


class TailError(Exception):
    """The log cannot be read; the sentence says why and what to do."""


def tail(agent: str, *, after: int, follow: bool, as_json: bool) -> Iterator[str]:
    """Lines to print, for entries after position `after`, for ever with `follow`.

    `agent`: base address of an admin listener. Raises TailError.
    """
    if urlsplit(agent).scheme not in ("http", "https") or not urlsplit(agent).netloc:
        raise TailError(f'"{agent}" is not an address like http://127.0.0.1:9094')
    url = f"{agent.rstrip('/')}/log?after={after}&follow={int(follow)}"
    try:
        # Only http and https get here.
        with urllib.request.urlopen(url, timeout=None if follow else TIMEOUT_S) as response:  # noqa: S310
            for raw in response:
                described = _parsed(raw)
                if "commands" not in described:
                    where = (
                        f" at position {described['position']}" if "position" in described else ""
                    )
                    raise TailError(f"the agent cannot read on{where}: {described.get('error')}")
                yield from [json.dumps(described)] if as_json else lines(described)
    except urllib.error.HTTPError as error:
        raise TailError(f"{agent} answers {error.code}: {_sentence(error)}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise TailError(
            f"no agent answers at {agent} ({reason}): is one running? (--agent says where)"
        ) from error


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        described = json.loads(raw)
    except ValueError as error:
        raise TailError(
            "the answer is not an agent's: is the address its http listener?"
        ) from error
    if not isinstance(described, dict):
        raise TailError("the answer is not an agent's: is the address its http listener?")
    return described


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"])
    except (ValueError, LookupError, TypeError):
        return error.reason or "no reason given"
