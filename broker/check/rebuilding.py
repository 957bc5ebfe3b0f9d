"""Makes lost pages anew out of the tables of segments. Pure.

The table of a segment says of each span all that a row says. So the rows of a page that stood for spans of segments
are found again; and that they are the very rows is proven: their body must have the digest that the log has. What
held ends of transactions, or spans that are in chunks still, is not found so, but in the past (`past_pages`).
"""

from collections.abc import Iterable, Iterator
from typing import Final

from storage.formats.page import digest, encode_rows
from storage.formats.segment import Segment
from storage.formats.spans import Page, Span

STEPS_MAX: Final = 20_000
"""Spans that are tried for one page. Offsets that were moved twice are in two segments, as a rule in no more."""


def spans_of(segment: Segment) -> Iterator[tuple[bytes, int, Span]]:
    """All of it, each with its topic and partition."""
    for each in segment.spans:
        yield (
            each.topic_id,
            each.partition,
            Span(
                segment.object_id,
                each.start,
                each.length,
                each.base_offset,
                each.next_offset - each.base_offset,
                each.timestamp_max,
            ),
        )


def body_of(page: Page, spans: Iterable[Span]) -> bytes | None:
    """The page's body out of spans of its partition, if they make it."""
    at: dict[int, list[Span]] = {}
    for each in spans:
        if page.base_offset <= each.base_offset and each.next_offset <= page.next_offset:
            at.setdefault(each.base_offset, []).append(each)
    for there in at.values():
        there.sort(reverse=True)  # By object: the newest is the likeliest.
    chosen: list[Span] = []
    ways = [iter(at.get(page.base_offset, ()))]
    for _ in range(STEPS_MAX):
        span = next(ways[-1], None)
        if span is None:
            ways.pop()
            if not ways:
                return None
            chosen.pop()
            continue
        if span.next_offset < page.next_offset and len(chosen) + 1 < page.rows:
            chosen.append(span)
            ways.append(iter(at.get(span.next_offset, ())))
        elif span.next_offset == page.next_offset and len(chosen) + 1 == page.rows:
            body = encode_rows([*chosen, span])
            if digest(body) == page.digest:
                return body
    return None
