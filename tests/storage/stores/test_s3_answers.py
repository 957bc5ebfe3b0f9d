"""Answers to the S3 adapter that no S3 gives: of proxies, and of servers that are like it."""

import pytest

from storage.stores import s3
from storage.stores.object_store import StoreUnavailableError
from tests.storage.stores.fake_s3 import Answer, against

pytestmark = pytest.mark.real_loop


def page(rows: str, *, truncated: str = "false") -> bytes:
    text = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{rows}</ListBucketResult>"
    return text.encode()


KEY, SIZE = "<Key>f/a</Key>", "<Size>1</Size>"
MODIFIED = "<LastModified>2026-11-21T10:00:00.000Z</LastModified>"


@pytest.fixture(autouse=True)
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "RETRIES_MAX", 0)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"please log in"),
        Answer(201, b"please log in"),
        Answer(200, page(f"<Contents>{KEY}{SIZE}")),
        Answer(200, page(f"<Contents>{KEY}{SIZE}</Contents>")),
        Answer(200, page(f"<Contents>{KEY}<Size>much</Size>{MODIFIED}</Contents>")),
        Answer(200, page(f"<Contents>{KEY}{SIZE}<LastModified>once</LastModified></Contents>")),
        Answer(200, page("", truncated="true")),
    ],
    ids=["text", "text of 201", "cut", "no date", "no size", "no time", "no end"],
)
async def test_what_is_no_listing_may_pass_and_is_never_an_error_of_ours(answer: Answer) -> None:
    async with against(lambda _: answer) as (store, _):
        with pytest.raises(StoreUnavailableError):
            await store.list_after("f", "")


@pytest.mark.parametrize("status", [200, 201])
async def test_what_is_no_answer_to_a_deletion_may_pass(status: int) -> None:
    async with against(lambda _: Answer(status, b"please log in")) as (store, _):
        with pytest.raises(StoreUnavailableError):
            await store.delete(["a"])


async def test_a_range_of_other_bytes_than_were_asked_for_is_not_taken() -> None:
    for said, body in (("5-9", b"56789"), ("0-9", b"0123456789"), ("0-2", b"012")):
        headers = (("content-range", f"bytes {said}/10"),)
        async with against(lambda _, b=body, h=headers: Answer(206, b, h)) as (store, _):
            with pytest.raises(StoreUnavailableError):
                await store.get_range("a", 0, 5)
