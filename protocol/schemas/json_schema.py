"""JSON Schemas: texts to JSON values, and where each `$ref` leads. Pure.

A `$ref` is followed within its document (pointers, `$id`, `$anchor`) and into the documents that the
schema was registered with; nothing is ever fetched. What the keywords mean is left to whoever reads
the values: comparing asks for other ones than making columns does.

Left out: dynamic references, vocabularies.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from protocol.schemas import SchemaError

DEPTH_MAX: Final = 200


class Documents:
    """A schema and those that it was registered with, by the names that `$ref`s use."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        """The schema itself is called "". Raises SchemaError."""
        self.root = documents[""]
        self._documents = documents
        self._bases: dict[str, str] = {}
        """Document by the `$id` of its root."""
        self._anchors: dict[tuple[str, str], Any] = {}
        for name, document in documents.items():
            root_id = _id(document)
            if root_id:
                self._bases[root_id.partition("#")[0]] = name
            self._collect(document, name, 0)

    def follow(self, ref: str, document: str) -> tuple[Any, str]:
        """Returns (what a `$ref` in this document leads to, the document that is in).

        Raises SchemaError.
        """
        where, _, fragment = ref.partition("#")
        target = self._document_of(where, document)
        if target is None:
            inner = self._anchors.get((document, where))
            if inner is None:
                raise SchemaError(f'$ref "{ref}" leads nowhere: is it among the references?')
            return _pointed(inner, fragment, ref), document
        if fragment and not fragment.startswith("/"):
            anchored = self._anchors.get((target, fragment))
            if anchored is None:
                raise SchemaError(f'$ref "{ref}": there is no such anchor')
            return anchored, target
        return _pointed(self._documents[target], fragment, ref), target

    def _collect(self, value: Any, document: str, depth: int) -> None:
        """Anchors and inner `$id`s."""
        if depth > DEPTH_MAX:
            raise SchemaError(f"nested deeper than {DEPTH_MAX}")
        if isinstance(value, list):
            for item in value:
                self._collect(item, document, depth + 1)
        elif isinstance(value, dict):
            for name in ("$anchor", "$id", "id"):
                anchor = value.get(name)
                if isinstance(anchor, str) and anchor:
                    self._anchors.setdefault((document, anchor.removeprefix("#")), value)
            for item in value.values():
                self._collect(item, document, depth + 1)

    def _document_of(self, where: str, document: str) -> str | None:
        """Which document a `$ref` means: this one, one by its reference's name, or by its `$id`."""
        if not where:
            return document
        base = _id(self._documents[document])
        # A relative name stands beside the document that says it.
        for name in (where, f"{base.rpartition('/')[0]}/{where}" if base else where):
            if name in self._documents:
                return name
            if name in self._bases:
                return self._bases[name]
        return None


def parse_json(text: str, references: Mapping[str, str]) -> Documents:
    """Returns a schema with its `references`, texts by name. Raises SchemaError."""
    return Documents({"": load(text), **{name: load(other) for name, other in references.items()}})


def load(text: str) -> Any:
    """Returns the JSON value of one text. Raises SchemaError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"not JSON: {error}") from error
    if not isinstance(value, dict | bool):
        raise SchemaError("a JSON Schema is an object, true or false")
    return value


def _id(document: Any) -> str:
    if not isinstance(document, dict):
        return ""
    found = document.get("$id", document.get("id", ""))
    return found if isinstance(found, str) else ""


def _pointed(document: Any, fragment: str, ref: str) -> Any:
    """What a JSON pointer (RFC 6901) leads to."""
    value = document
    for part in fragment.split("/")[1:] if fragment else ():
        key = _unquoted(part).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and re.fullmatch("[0-9]{1,9}", key) and int(key) < len(value):
            value = value[int(key)]
        else:
            raise SchemaError(f'$ref "{ref}" leads nowhere')
    return value


def _unquoted(part: str) -> str:
    """Per cent signs with two digits (RFC 3986) as the bytes that they mean."""
    pieces = re.split("%([0-9A-Fa-f]{2})", part)
    data = b"".join(
        bytes.fromhex(piece) if index % 2 else piece.encode() for index, piece in enumerate(pieces)
    )
    return data.decode(errors="replace")
