"""Writes `docs/apis.md`, the page of all APIs that are served: `python -m broker.api_reference`."""

from pathlib import Path
from typing import Final

from broker.api import Api, Right
from broker.handlers import SERVED
from protocol import apis
from protocol.messages.budgets import ELEMENTS_MAX
from protocol.messages.codec import refusable

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "apis.md"
_HEAD: Final = """\
# APIs of Kafka that are served

Written by `python -m broker.api_reference` from the declarations in `broker/handlers/`. "Changes":
the request is refused after a stall of the agent, since its client may have given up (P17).
"Unavailable": what says that nothing happened when the metadata log cannot be asked. "Elements": how
many a request may have in all its arrays together, and in which versions one that has more is told
INVALID_REQUEST, since the answer has an error code of its own; in others its connection is closed.
"Rights": what is asked for where an authorizer is set (docs/design/rights.md).

| key | API | versions | changes | unavailable | elements | told from | rights |
|--:|--|--|--|--|--:|--|--|
"""


def page() -> str:
    return _HEAD + "".join(_row(api) for api in SERVED.values())


def _row(api: Api) -> str:
    row = apis.APIS[api.key]
    versions = f"{row.min_version} to {row.max_version}"
    rights = "; ".join(map(_right, api.rights)) or "none"
    changes = "yes" if api.changes else ""
    cells = (
        api.key,
        api.name,
        versions,
        changes,
        api.unavailable.name,
        f"{ELEMENTS_MAX[api.key]:,}",
        _told(row),
        rights,
    )
    return "| " + " | ".join(map(str, cells)) + " |\n"


def _told(row: apis.Api) -> str:
    """The versions whose answer can refuse the whole."""
    if row.key == apis.PRODUCE:
        return ""
    versions = [
        version
        for version in range(row.min_version, row.max_version + 1)
        if refusable(row.key, version)
    ]
    if not versions:
        return ""
    first, last = versions[0], versions[-1]
    if last == row.max_version:
        return f"v{first}"
    return f"v{first} to v{last}"


def _right(right: Right) -> str:
    words = f"{right.operation.name} {right.resource.name.lower()}"
    if right.paths:
        words += f" ({', '.join(f'`{path}`' for path in right.paths)})"
    return words if right.instead is None else f"{words}, or {_right(right.instead)}"


if __name__ == "__main__":
    PAGE.write_text(page())
