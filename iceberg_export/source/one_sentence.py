"""What Spark prints of our errors: the sentence, and not how we came to it.

Spark shows a traceback of whatever a data source raises, with all that led there, and the sentence for whoever asked
comes last. An `ExportError` says all in its sentence, so it is raised anew where Spark called us, without its way.
Errors that nobody foresaw keep theirs.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from iceberg_export.errors import ExportError

Call = TypeVar("Call", bound=Callable[..., Any])
Item = TypeVar("Item")


def one_sentence(call: Call) -> Call:
    """The same call; an ExportError of it has no traceback but this line."""

    @functools.wraps(call)
    def told(*arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except ExportError as error:
            found = error
        raise found.with_traceback(None) from None

    return told  # type: ignore[return-value]


def each_in_one_sentence(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; an ExportError on the way to one likewise."""
    take = one_sentence(functools.partial(next, items, None))
    while (item := take()) is not None:
        yield item
