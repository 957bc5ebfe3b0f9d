"""Reasons why the object store refused to delete; the operator is told each once. Pure.

A bucket may hold any number of objects that cannot go. So there is a sentence for each reason and
not for each object, with one object as an example; and reasons that name their object are taken
for the same. What is remembered is bounded: reasons beyond REASONS_MAX are told by nobody.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from storage.stores.object_store import DeleteRefusal

REASONS_MAX: Final = 20


class Refusals:
    """The reasons met by one process."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()

    def news(self, refused: Iterable[DeleteRefusal]) -> Iterator[str]:
        """A sentence for each reason that was not met before."""
        by_reason: dict[str, list[DeleteRefusal]] = {}
        for each in refused:
            by_reason.setdefault(each.reason.replace(each.key, "…"), []).append(each)
        for reason, those in by_reason.items():
            if reason not in self._reasons and len(self._reasons) < REASONS_MAX:
                self._reasons.add(reason)
                first = those[0]
                more = f" and {len(those) - 1} more" if len(those) > 1 else ""
                yield f"the object store refuses to delete {first.key}{more}: {first.reason}"
