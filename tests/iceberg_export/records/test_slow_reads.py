"""Chunks that come on a slow way, and on one that hangs."""

import asyncio

import pytest

from iceberg_export.errors import StoreReadError
from iceberg_export.plan.splits import StoreAddress
from iceberg_export.records import read_chunks
from iceberg_export.records.read_chunks import open_reader
from tests.storage.stores.fake_s3 import Answer, FakeS3, Request

pytestmark = pytest.mark.real_loop

BODY = bytes(1 << 20)
KEYS = {"store.access.key": "key", "store.secret.key": "secret", "store.path.style": "true"}


@pytest.fixture(autouse=True)
def short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_chunks, "RETRIES_MAX", 0)
    monkeypatch.setattr(read_chunks, "ANSWER_SECONDS_MAX", 0.5)


def answer(_request: Request) -> Answer:
    size = len(BODY)
    return Answer(206, BODY, (("content-range", f"bytes 0-{size - 1}/{size}"),))


async def read(server: FakeS3) -> memoryview:
    address = StoreAddress("s3://bucket", endpoint=server.url, region="us-east-1", path_style=True)
    reader = open_reader(address, KEYS)
    return await asyncio.to_thread(reader.read, "chunks/a/b", 0, len(BODY))


async def test_a_chunk_that_comes_slowly_and_steadily_is_read() -> None:
    async with FakeS3(answer, body_s=1.2) as server:
        assert await read(server) == BODY


async def test_a_chunk_that_does_not_come_is_given_up() -> None:
    async with FakeS3(answer, body_s=60.0) as server:
        async with asyncio.timeout(10):
            with pytest.raises(StoreReadError, match="cannot read"):
                await read(server)
