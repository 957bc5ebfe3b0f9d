"""Names that clients choose reach the log as one bounded line, whatever is in them."""

import asyncio
import dataclasses
import io
import logging
from collections.abc import Iterator

import pytest

from broker.handlers import SERVED
from broker.logs import VALUE_CHARACTERS_MAX, JsonFormatter, TextFormatter
from protocol import apis
from tests.broker.handlers.test_every_api import (
    EVERY_API,
    lives,
    one_with_a_topic,
    request_of,
    versions,
)
from tests.broker.registry.client import registry_of
from tests.kit.client import settle
from tests.kit.sockets import Place

EVIL = "e\x1b[2J\r\nERROR broker.agent: forged\x00\x9b\u2028\u202e\x7f"
LONG = EVIL + "x" * 20_000
LINE_MAX = VALUE_CHARACTERS_MAX + 1_000


class Lines:
    """What a collector of log lines gets."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.stream = io.StringIO(newline="")
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(formatter)

    def told(self) -> list[str]:
        return self.stream.getvalue().split("\n")[:-1]

    def check(self) -> None:
        for line in self.told():
            assert line.isprintable(), ascii(line)
            assert len(line) < LINE_MAX, line[:1_000]
            assert not line.startswith("ERROR"), line


@pytest.fixture(params=[TextFormatter, JsonFormatter])
def lines(request) -> Iterator[Lines]:
    found = Lines(request.param())
    root = logging.getLogger()
    level = root.level
    root.addHandler(found.handler)
    root.setLevel(logging.DEBUG)
    yield found
    root.setLevel(level)
    root.removeHandler(found.handler)


def with_names(value, name):
    """The same request with every text in it replaced."""
    if isinstance(value, str):
        return name
    if isinstance(value, list):
        return [with_names(each, name) for each in value]
    if dataclasses.is_dataclass(value):
        fields = {
            f.name: with_names(getattr(value, f.name), name) for f in dataclasses.fields(value)
        }
        return type(value)(**fields)
    return value


@EVERY_API
async def test_names_in_requests(api, world, lines):
    async with one_with_a_topic(world) as one:
        for name in (EVIL, LONG):
            client = one.connect()
            await client.call(apis.API_VERSIONS, 3, request_of(SERVED[apis.API_VERSIONS]))
            request = with_names(request_of(api), name)
            client.send(api.key, max(versions(api)), request, client_id=name)
            for _ in range(1_000):
                if len(client.frames()) > 1 or client.closed:
                    break
                await asyncio.sleep(0.1)
            client.hang_up()
            await settle()
        await lives(one)
    lines.check()


@pytest.mark.parametrize("name", [EVIL, LONG], ids=["evil", "long"])
def test_names_that_a_message_repeats(name, lines):
    """As groups, transactions and jobs do, with or without quotes."""
    logger = logging.getLogger("broker.groups")
    logger.warning("group %r was not changed: %s", name, name, extra={"member": name})
    try:
        raise ValueError(name[:1_000])
    except ValueError:
        logger.exception("group %s cannot be read", name)
    assert len(lines.told()) == 2
    assert all(line.isprintable() for line in lines.told())
    assert all(len(line) < 4 * LINE_MAX for line in lines.told())


@pytest.mark.real_loop
@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /subjects/%s/versions HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        % b"".join(b"%%%02x" % byte for byte in EVIL.encode()),
        b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % (b"x" * 7_000),
        b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % EVIL.encode(),
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n%s: 1\r\n\r\n" % EVIL.encode(),
        b"%s\r\n\r\n" % EVIL.encode(),
        b"POST /subjects/s/versions HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: %s\r\n\r\n"
        % (b"\x1b\xff" * 1_000),
    ],
    ids=["subject", "path", "host", "header", "line", "expect"],
)
async def test_names_over_http(request_line, lines):
    async with registry_of(Place()) as registry:
        port = registry.running.agent.listening()["registry"][1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_line)
        writer.write_eof()
        async with asyncio.timeout(30):
            await reader.read()
        writer.close()
        await registry.get("/subjects")
    lines.check()
