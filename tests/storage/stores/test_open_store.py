"""From URLs to stores; every mistake has a sentence of its own."""

from pathlib import Path

import pytest

from storage.stores.disk import DiskStore
from storage.stores.memory import MemoryStore
from storage.stores.open_store import StoreOptions, open_store
from storage.stores.s3 import S3Store

PLAIN = StoreOptions()


def test_memory_url_opens_a_fresh_store() -> None:
    assert isinstance(open_store("memory://", PLAIN), MemoryStore)


@pytest.mark.real_loop
async def test_file_url_opens_its_folder(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/with%20space", PLAIN)
    assert isinstance(store, DiskStore)
    await store.put_new("a", [b"x"])
    await store.aclose()
    assert (tmp_path / "with space" / "a").read_bytes() == b"x"


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3://bucket/a/pre.fix/"])
def test_s3_url_opens_a_store_without_a_connection(url: str) -> None:
    assert isinstance(open_store(url, PLAIN), S3Store)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "is not the URL"),
        ("/folder", "is not the URL"),
        ("bucket", "is not the URL"),
        ("gs://bucket", "is not the URL"),
        ("file://folder", "three slashes"),
        ("file:///", "names no folder"),
        ("file:///a?b=c", "has a '\\?'"),
        ("s3://", "does not name a bucket"),
        ("s3:///prefix", "does not name a bucket"),
        ("s3://bucket:9000", "does not name a bucket"),
        ("s3://bucket/a b", "cannot begin the keys"),
        ("s3://bucket/../x", "cannot begin the keys"),
        ("s3://bucket?region=x", "has a '\\?'"),
    ],
)
def test_url_that_makes_no_sense_is_refused_with_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        open_store(url, PLAIN)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (StoreOptions(access_key="a"), "only one is given"),
        (StoreOptions(secret_key="s"), "only one is given"),
        (StoreOptions(endpoint="localhost:9000"), "is not an http"),
        (StoreOptions(endpoint="ftp://host"), "is not an http"),
        (StoreOptions(ca_file=Path("/nowhere/ca.pem")), "there is no file"),
        (StoreOptions(checksum="md5"), "is none of"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_a_sentence(
    options: StoreOptions, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        open_store("s3://bucket", options)


def test_secret_key_is_not_shown() -> None:
    options = StoreOptions(access_key="public", secret_key="hidden-one")
    assert "hidden-one" not in repr(options)


def test_url_with_credentials_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="do not belong into the URL") as caught:
        open_store("s3://key:hidden-one@bucket", PLAIN)
    assert "hidden-one" not in str(caught.value)
