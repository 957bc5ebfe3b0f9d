"""What a browser sees of records, and who."""

import asyncio
import html as entities
import itertools
import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from broker.calls.local_calls import LocalCallError
from broker.console import record_access, record_pages, record_reading
from broker.console.record_pages import ask_again_ms
from broker.console.record_reading import Bounds
from broker.edge import local_calls
from broker.edge.local_calls import CLIENT_ID
from protocol import apis, messages
from protocol.compression import Codec
from protocol.records import TRANSACTIONAL, Record, build_batch
from protocol.schemas.frames import frame_head
from tests.broker.agents import serving
from tests.broker.handlers.test_quotas import altering, entry
from tests.broker.registry.client import RECORD, Registry
from tests.kit import requests
from tests.kit.sockets import Place, Running, SocketClient

pytestmark = pytest.mark.real_loop

BROWSER = {"Accept": "text/html,application/xhtml+xml"}
LOGS = {"retention.ms": "-1"}


async def page(running: Running, path: str, **headers: str) -> tuple[int, str]:
    return await running.http("GET", path, headers=BROWSER | headers)


def words(html: str) -> str:
    """What is read on a page."""
    main = html[html.index("<main") : html.index("</main>")]
    return entities.unescape(" ".join(re.sub(r"<[^>]*>", " ", main).split()))


def offsets(html: str) -> list[tuple[int, int]]:
    """Partition and offset of the records on a page, in their order."""
    return [(int(p), int(o)) for p, o in re.findall(r'<tr id="record-(\d+)-(\d+)"', html)]


def link(html: str, said: str) -> str | None:
    found = re.search(rf'href="([^"]*)">{said}</a>', html)
    return None if found is None else entities.unescape(found[1])


async def create(client: SocketClient, topic: str, partitions: int = 1, **configs: str) -> None:
    request = requests.create_topics({topic: partitions}, LOGS | configs)
    answer = await client.call(apis.CREATE_TOPICS, 5, request)
    assert answer.topics[0].error_code == 0


async def produce(
    client: SocketClient, topic: str, some: Sequence[Record], partition: int = 0, **batch: Any
) -> int:
    """The offset of the first of them."""
    request = requests.produce({(topic, partition): build_batch(some, **batch)})
    row = requests.rows_of(await client.call(apis.PRODUCE, 9, request))[topic, partition]
    assert row.error_code == 0, row
    return row.base_offset


def numbered(count: int, first: int = 0) -> list[Record]:
    return [
        Record(key=b"k%d" % each, value=b"value %d" % each, timestamp=1_000_000 + each)
        for each in range(first, first + count)
    ]


async def test_the_newest_records_are_shown_and_older_ones_behind_a_link() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        for first in range(0, 120, 30):
            await produce(client, "orders", numbered(30, first))
        status, html = await page(running, "/console/records?topic=orders")
        assert status == 200
        assert offsets(html) == [(0, each) for each in range(119, 69, -1)]
        assert "0 119 1970-01-01 00:16:40.119 k119 value 119 0 13 bytes" in words(html)
        assert link(html, "Newer") is None
        _, html = await page(running, link(html, "Older"))
        assert offsets(html) == [(0, each) for each in range(69, 19, -1)]
        _, oldest = await page(running, link(html, "Older"))
        assert offsets(oldest) == [(0, each) for each in range(19, -1, -1)]
        assert link(oldest, "Older") is None
        _, newer = await page(running, link(html, "Newer"))
        assert offsets(newer) == [(0, each) for each in range(119, 69, -1)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_of_large_batches_no_more_is_looked_at_than_shown_and_none_is_left_out(
    codec: Codec,
) -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        for first in (0, 400, 490):
            await produce(
                client, "orders", numbered(400 if first != 400 else 90, first), codec=codec
            )
        path: str | None = "/console/records?topic=orders"
        seen: list[tuple[int, int]] = []
        while path is not None:
            _, html = await page(running, path)
            shown = offsets(html)
            (looked,) = re.findall(r"Looked at ([\d,]+) records? in", words(html))
            # A page may begin in a batch and end in the one before.
            assert len(shown) <= int(looked.replace(",", "")) <= 100
            seen += shown
            path = link(html, "Older")
        assert seen == [(0, each) for each in range(889, -1, -1)]


async def test_a_partition_of_a_topics_page_leads_to_its_newest_records() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders", 3)
        for partition in (0, 2):
            await produce(client, "orders", numbered(60, 100 * partition), partition)
        _, html = await page(running, "/console/topic?name=orders")
        for partition in (0, 2):
            path = link(html, str(partition))
            assert path == f"/console/records?topic=orders&partition={partition}"
            _, records = await page(running, path)
            assert offsets(records) == [(partition, each) for each in range(59, 9, -1)]
            assert "data-still" not in records
        _, records = await page(running, link(html, "1"))
        assert "There is no record here." in words(records)


async def test_records_are_read_from_the_beginning_an_offset_or_a_time_oldest_first() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        await produce(client, "orders", numbered(60))
        _, html = await page(running, "/console/records?topic=orders&from=beginning")
        assert offsets(html) == [(0, each) for each in range(50)]
        _, html = await page(running, link(html, "Newer"))
        assert offsets(html) == [(0, each) for each in range(50, 60)]
        _, html = await page(running, "/console/records?topic=orders&from=offset&where=57")
        assert offsets(html) == [(0, 57), (0, 58), (0, 59)]
        for time in ("1000058", "1970-01-01T00:16:40.058"):
            _, html = await page(running, f"/console/records?topic=orders&from=time&where={time}")
            assert offsets(html) == [(0, 58), (0, 59)]
        _, html = await page(running, "/console/records?topic=orders&from=time&where=2000-01-01")
        assert offsets(html) == []


async def test_records_of_all_partitions_are_merged_by_time_and_none_is_left_out() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders", 3)
        for number in range(3):
            some = [Record(value=b"v", timestamp=1000 + 3 * each + number) for each in range(40)]
            await produce(client, "orders", some, number)
        _, html = await page(running, "/console/records?topic=orders")
        seen = offsets(html)
        assert seen[:4] == [(2, 39), (1, 39), (0, 39), (2, 38)]
        while (older := link(html, "Older")) is not None:
            _, html = await page(running, older)
            seen += offsets(html)
        assert sorted(seen) == [(number, each) for number in range(3) for each in range(40)]
        assert len(seen) == len(set(seen))
        _, html = await page(running, "/console/records?topic=orders&partition=1")
        assert {number for number, _ in offsets(html)} == {1}


async def test_only_a_page_of_the_newest_asks_for_itself_again() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        for rest, is_still in (("", False), ("&from=beginning", True), ("&search=x", True)):
            _, html = await page(running, f"/console/records?topic=orders{rest}")
            assert ("data-still" in html) == is_still


async def test_a_page_that_follows_asks_again_when_a_hundredth_of_a_core_has_paid_for_it(
    monkeypatch,
) -> None:
    assert [ask_again_ms(each) for each in (0.0, 0.004, 0.07, 5.0)] == [0, 400, 7_000, 300_000]
    clock = itertools.count(1.0, 0.07)
    monkeypatch.setattr(record_pages, "process_time", lambda: next(clock))
    async with serving() as running:
        await create(await running.connect(), "orders")
        url = f"http://127.0.0.1:{running.agent.listening()['http'][1]}"
        async with aiohttp.ClientSession(url, headers=BROWSER) as session:
            for rest, told in (("", "7000"), ("&from=beginning", None), ("&search=x", None)):
                async with session.get(f"/console/records?topic=orders{rest}") as answer:
                    assert (answer.status, answer.headers.get("Ask-Again-Ms")) == (200, told)


async def test_a_search_says_how_far_it_looked_and_goes_on_from_there(monkeypatch) -> None:
    monkeypatch.setattr(record_pages, "BOUNDS", Bounds(records=100))
    monkeypatch.setattr(record_reading, "FETCH_BYTES_MAX", 1000)
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        for first in range(0, 300, 50):
            await produce(client, "orders", numbered(50, first), codec=Codec.GZIP)
        for start, way, looked in (
            ("beginning", "newer", "0 to 99"),
            ("newest", "older", "200 to 299"),
        ):
            seen: list[tuple[int, int]] = []
            further: str | None = f"/console/records?topic=orders&from={start}&search=VALUE%2029"
            while further is not None:
                _, html = await page(running, further)
                if not seen:
                    told = rf"Looked at \d+ records in [\d,]+ bytes: partition 0 offsets {looked}\."
                    assert re.search(f"{told} A page looks no further at once", words(html))
                assert len(seen) < 11
                seen += offsets(html)
                further = link(html, f"Look further, at {way} ones")
            assert sorted(seen) == [(0, 29), *((0, each) for each in range(290, 300))]


async def test_a_search_back_looks_through_the_whole_of_a_large_batch_at_once() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        await produce(client, "orders", numbered(400))
        size = len(build_batch(numbered(400)))
        _, html = await page(running, "/console/records?topic=orders&search=VALUE%20123")
        assert offsets(html) == [(0, 123)]
        assert f"Looked at 400 records in {size:,} bytes: partition 0 offsets 0 to 399." in words(
            html
        )


@pytest.mark.parametrize("start", ["beginning", "newest"])
async def test_a_search_that_finds_nothing_ends_at_the_bytes_that_a_page_may_fetch(
    monkeypatch, start: str
) -> None:
    monkeypatch.setattr(record_pages, "BOUNDS", Bounds(bytes=20_000, overrun=2))
    monkeypatch.setattr(record_reading, "FETCH_BYTES_MAX", 1000)
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        for number in range(60):
            record = Record(key=None, value=b"x" * 2000, timestamp=number)
            await produce(client, "orders", [record])
        _, html = await page(running, f"/console/records?topic=orders&from={start}&search=zzz")
        said = words(html)
        (fetched,) = re.findall(r"records in ([\d,]+) bytes", said)
        # What was begun may be ended within twice as much; the last fetch has one batch.
        assert int(fetched.replace(",", "")) < 2 * 20_000 + 2_200
        assert "A page looks no further at once." in said


async def test_a_value_is_shown_by_its_schema_text_as_text_and_the_rest_in_hexadecimal() -> None:
    async with serving(None, "schema.registry.listeners=http://127.0.0.1:0") as running:
        client = await running.connect()
        await create(client, "orders")
        async with aiohttp.ClientSession() as session:
            schema_id = await Registry(running, session).register("orders-value", RECORD)
        values = [
            frame_head(schema_id) + b"\x54",
            frame_head(schema_id) + b"\xff",
            frame_head(schema_id + 1) + b"\x54",
            b'{"a":1}',
            None,
        ]
        await produce(client, "orders", [Record(value=each, timestamp=1) for each in values])
        _, html = await page(running, "/console/records?topic=orders&from=beginning")
        said = words(html)
        assert '{"a":42} Avro' in said
        assert f"not read by schema {schema_id}" in said
        assert f"00000000 {schema_id + 1:02x}54 hex" in said
        _, html = await page(running, "/console/record?topic=orders&partition=0&offset=0")
        assert f'Value Avro, 6 bytes, schema {schema_id} {{ "a": 42 }}' in words(html)
        _, html = await page(running, "/console/record?topic=orders&partition=0&offset=3")
        assert 'Value JSON, 7 bytes { "a": 1 }' in words(html)


async def test_the_page_of_a_record_has_its_facts_its_headers_and_its_bytes_to_save() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        long = b"<script>" + b"x" * 300_000
        headers = (("trace", b"\x00\x01"), ("note", b"hello"))
        await produce(
            client, "orders", [Record(key=b"k", value=long, headers=headers, timestamp=5)]
        )
        _, html = await page(running, "/console/records?topic=orders")
        assert "<script>x" not in html
        assert "xxx…" in words(html)
        path = link(html, "0")
        _, html = await page(running, path)
        said = words(html)
        assert "It goes on." in said
        assert "trace 0001 hex" in said
        assert "note hello" in said
        assert "1970-01-01 00:00:00.005 UTC (CreateTime, 5)" in said
        url = f"http://127.0.0.1:{running.agent.listening()['http'][1]}"
        saved = re.findall(r'href="(/console/record/bytes[^"]*)"', html)
        async with (
            aiohttp.ClientSession(url) as session,
            session.get(entities.unescape(saved[1])) as answer,
        ):
            assert await answer.read() == long
            assert answer.headers["Content-Type"] == "application/octet-stream"
            told = answer.headers["Content-Disposition"]
            assert told == 'attachment; filename="orders-0-0.value"'
        status, html = await page(running, "/console/record?topic=orders&partition=0&offset=1")
        assert (status, "there is no record to be shown" in words(html)) == (404, True)


async def test_aborted_and_open_transactions_are_seen_by_who_asks_for_uncommitted_records() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        for outcome in (False, True, None):
            init = requests.init_producer_id("t")
            made = await client.call(apis.INIT_PRODUCER_ID, 4, init)
            producer = (made.producer_id, made.producer_epoch)
            await client.call(
                apis.ADD_PARTITIONS_TO_TXN,
                3,
                requests.add_partitions("t", producer, [("orders", 0)]),
            )
            batch = build_batch(
                [Record(value=str(outcome).encode(), timestamp=1)],
                attributes=TRANSACTIONAL,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=0,
            )
            request = requests.produce({("orders", 0): batch}, transactional_id="t")
            row = requests.rows_of(await client.call(apis.PRODUCE, 9, request))["orders", 0]
            assert row.error_code == 0
            if outcome is not None:
                await client.call(apis.END_TXN, 3, requests.end_txn("t", producer, commit=outcome))
        _, html = await page(running, "/console/records?topic=orders")
        assert offsets(html) == [(0, 2)]
        _, html = await page(running, "/console/records?topic=orders&uncommitted=1")
        assert offsets(html) == [(0, 4), (0, 2), (0, 0)]
        assert (await page(running, "/console/record?topic=orders&partition=0&offset=0"))[0] == 404
        _, html = await page(
            running, "/console/record?topic=orders&partition=0&offset=0&uncommitted=1"
        )
        assert "Transaction part of one" in words(html)


async def test_a_lost_chunk_is_a_sentence_and_what_is_beside_it_is_shown() -> None:
    place = Place()
    async with serving(place) as running:
        client = await running.connect()
        await create(client, "orders")
        for first in range(0, 9, 3):
            await produce(client, "orders", numbered(3, first))
            if first == 0:
                before = {each.key for each in await place.objects.list_after("", "")}
            if first == 3:
                (gone,) = {each.key for each in await place.objects.list_after("", "")} - before
        await place.objects.delete([gone])
        # It has its own batches in memory; the other one has to read.
        async with serving(place, "node.name=two") as other:
            for start, expected in (
                ("newest", [8, 7, 6, 2, 1, 0]),
                ("beginning", [0, 1, 2, 6, 7, 8]),
            ):
                status, html = await page(other, f"/console/records?topic=orders&from={start}")
                assert (status, offsets(html)) == (200, [(0, each) for each in expected])
                assert "Offsets 3 to 5 of partition 0 cannot be shown" in words(html)
            status, html = await page(other, "/console/record?topic=orders&partition=0&offset=4")
            assert (status, "Offsets 4 to 5 of partition 0 cannot be shown" in html) == (503, True)


def tokens(folder: Path, *names: str) -> str:
    """A setting by which these users have tokens."""
    for name in names:
        (folder / name).write_text(token_of(name))
    return "http.tokens=" + ",".join(f"{name}:{folder / name}" for name in names)


def token_of(name: str) -> str:
    return f"this-is-the-token-of-{name}"


def said_by(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of(name)}"}


PATHS = (
    "/console/records?topic=orders",
    "/console/record?topic=orders&partition=0&offset=0",
    "/console/record/bytes?topic=orders&partition=0&offset=0",
)


async def test_a_viewer_sees_no_records_and_a_reader_does(tmp_path: Path) -> None:
    flags = (
        tokens(tmp_path, "vic", "rea", "ope"),
        "http.roles.viewer=User:vic",
        "http.roles.reader=User:rea",
        "http.roles.operator=User:ope",
    )
    async with serving(None, *flags) as running:
        client = await running.connect()
        await create(client, "orders")
        await produce(client, "orders", numbered(1))
        for path in PATHS:
            assert (await page(running, path))[0] == 401
            status, html = await page(running, path, **said_by("vic"))
            assert (status, "value 0" in html) == (403, False)
            assert "http.roles.reader" in html
            for name in ("rea", "ope"):
                status, html = await page(running, path, **said_by(name))
                assert (status, "value 0" in html) == (200, True)
        assert (await page(running, "/console/topics", **said_by("rea")))[0] == 200


async def test_where_rights_are_on_a_reader_and_an_operator_need_read_on_the_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "frazil.audit")
    flags = (
        tokens(tmp_path, "rea", "may", "ope"),
        "http.roles.reader=User:rea;User:may",
        "http.roles.operator=User:ope",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
    )
    async with serving(None, *flags) as running:
        client = await running.connect()
        await create(client, "orders")
        await produce(client, "orders", numbered(1))
        await client.call(apis.CREATE_ACLS, 2, allow_read("User:may", "orders"))
        for path in PATHS:
            for name, expected in (("rea", 403), ("ope", 403), ("may", 200)):
                status, html = await page(running, path, **said_by(name))
                assert (status, "value 0" in html) == (expected, expected == 200), (path, name)
        # What is not there is refused alike.
        nothing = "/console/records?topic=nothing"
        assert (await page(running, nothing, **said_by("rea")))[0] == 403
    told = [json.loads(each.message) for each in caplog.records if each.name == "frazil.audit"]
    (first, *_) = [each for each in told if each["event"] == "refused"]
    assert (first["principal"], first["operation"], first["name"]) == ("User:rea", "READ", "orders")
    assert first["api"] == "HTTP GET /console/records"


async def test_whoever_says_the_token_reads_by_an_acl_for_its_principal() -> None:
    token = "a-token-of-some-length"
    flags = (
        f"http.token={token}",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
    )
    async with serving(None, *flags) as running:
        client = await running.connect()
        await create(client, "orders")
        said = {"Authorization": f"Bearer {token}"}
        assert (await page(running, PATHS[0], **said))[0] == 403
        await client.call(apis.CREATE_ACLS, 2, allow_read("Token:http.token", "orders"))
        assert (await page(running, PATHS[0], **said))[0] == 200


async def test_whom_nobody_asks_for_a_name_reads_nothing_where_rights_are_on() -> None:
    flags = ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",)
    async with serving(None, *flags) as running:
        status, html = await page(running, PATHS[0])
        assert (status, "http.roles.reader" in words(html)) == (403, True)


def allow_read(principal: str, topic: str) -> messages.CreateAclsRequest:
    return messages.CreateAclsRequest(
        creations=[
            messages.AclCreation(
                resource_type=2,
                resource_name=topic,
                resource_pattern_type=3,
                principal=principal,
                host="*",
                operation=3,
                permission_type=3,
            )
        ]
    )


async def test_who_asks_for_what_is_no_page_is_told_what_one_is() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        for rest, status in (
            ("topic=orders&partition=x", 400),
            ("topic=orders&from=offset&where=x", 400),
            ("topic=orders&from=time&where=yesterday", 400),
            ("topic=orders&from=elsewhere", 400),
            ("topic=orders&at=0", 400),
            ("topic=orders&partition=7", 404),
            ("topic=orders&at=7:1", 404),
            ("topic=nothing", 404),
        ):
            assert (await page(running, f"/console/records?{rest}"))[0] == status, rest


async def test_more_pages_than_may_be_read_at_a_time_are_told_to_come_back(monkeypatch) -> None:
    monkeypatch.setattr(record_access, "WAIT_S_MAX", 0.0)
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        held = asyncio.Event()

        async def wait(*_arguments: object, **_named: object) -> None:
            await held.wait()
            raise LocalCallError("held")

        await produce(client, "orders", numbered(1))
        monkeypatch.setattr(local_calls.DispatchedCalls, "ask", wait)
        some = [
            asyncio.create_task(page(running, PATHS[0])) for _ in range(record_access.PAGES_MAX + 1)
        ]
        done, _ = await asyncio.wait(some, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result()[0] for each in done] == [503]
        held.set()
        assert sorted([status for status, _ in await asyncio.gather(*some)]) == [200, 200, 503]


async def test_pages_of_records_take_of_the_quotas_of_whoever_looks() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        await produce(client, "orders", [Record(value=b"x" * 100_000, timestamp=1)])
        console = entry((("client-id", CLIENT_ID),), ("consumer_byte_rate", 1))
        await client.call(apis.ALTER_CLIENT_QUOTAS, 1, altering(console))
        # As for consumers, the first answer may take what it likes; the next ones wait for it.
        said = [words((await page(running, PATHS[0]))[1]) for _ in range(3)]
        assert "more than a quota allows: wait" in said[-1]
