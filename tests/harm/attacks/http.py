"""What can be sent to the HTTP listeners: schemas that take long, bodies that do, heads that never end."""

import asyncio
import json

from tests.harm.scene import Scene, attack

AT_ONCE = 4


async def answer(scene: Scene, method: str, path: str, body: bytes) -> int:
    """The status of one request to the registry; 0: none."""
    peer = await scene.connect(scene.registry_port)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        await peer.send(head.encode() + body)
        told = await peer.read()
    except OSError:
        return 0
    finally:
        peer.close()
    return int(told.split(b" ")[1]) if told else 0


async def register(scene: Scene, subject: str, schema: str, kind: str, **more: object) -> int:
    body = json.dumps({"schema": schema, "schemaType": kind, **more}).encode()
    return await answer(scene, "POST", f"/subjects/{subject}/versions", body)


async def many(scene: Scene, subject: str, schema: str, kind: str, **more: object) -> None:
    """The same, from a few connections, and once more."""
    for _ in range(2):
        tasks = (register(scene, subject, schema, kind, **more) for _ in range(AT_ONCE))
        assert not set(await asyncio.gather(*tasks)) & {500, 503}


def alternatives(name: str, count: int) -> str:
    """A schema of so many alternatives, each of a few nodes."""
    return json.dumps(
        {
            "oneOf": [
                {"type": "object", "properties": {f"{name}{number}": {"type": "string"}}}
                for number in range(count)
            ]
        }
    )


@attack()
async def schemas_of_a_thousand_alternatives(scene: Scene) -> None:
    """Each of one is to be compared with each of the other."""
    assert await register(scene, "s", alternatives("a", 1000), "JSON") == 200
    await many(scene, "s", alternatives("b", 1000), "JSON")


@attack()
async def schemas_with_twenty_large_references(scene: Scene) -> None:
    """A few bytes that make five megabytes of schemas to be read."""
    for number in range(20):
        fields = ",".join(f'{{"name":"f{field}","type":"int"}}' for field in range(7_500))
        text = f'{{"type":"record","name":"R{number}","fields":[{fields}]}}'
        assert await register(scene, f"r{number}", text, "AVRO") == 200
    references = [
        {"name": f"R{number}", "subject": f"r{number}", "version": 1} for number in range(20)
    ]
    await many(scene, "s", '{"type":"array","items":"R7"}', "AVRO", references=references)


@attack()
async def schemas_with_expressions_for_every_name(scene: Scene) -> None:
    """Each name that goes is tried with each expression, and expressions can be long."""
    names = {f"{'a' * 20}{number}": {} for number in range(700)}
    patterns = {f"(a|b|ab){{1,50}}c{number}$": {} for number in range(700)}
    before = {"type": "object", "additionalProperties": False, "properties": names}
    after = {"type": "object", "additionalProperties": False, "patternProperties": patterns}
    assert await register(scene, "s", json.dumps(before), "JSON") == 200
    await many(scene, "s", json.dumps(after), "JSON")


@attack()
async def schemas_with_one_name_in_a_long_namespace(scene: Scene) -> None:
    """200 KB that say gigabytes: each alias has the namespace of its record."""
    text = {
        "type": "record",
        "name": "R",
        "namespace": "n" * 30_000,
        "fields": [],
        "aliases": ["a"] * 40_000,
    }
    await many(scene, "s", json.dumps(text), "AVRO")


@attack()
async def bodies_of_brackets(scene: Scene) -> None:
    """Deep ones, and millions of small ones."""
    for body in (b'{"references": [' + b"[]," * 1_300_000, b'{"schema": ' + b"[" * 3_900_000):
        for path in ("/config", "/mode/s"):
            asked = [answer(scene, "PUT", path, body) for _ in range(AT_ONCE)]
            assert 500 not in await asyncio.gather(*asked)


@attack()
async def heads_that_never_end(scene: Scene) -> None:
    """A thousand connections that send a byte now and then, and whoever asks is answered."""
    ports = (scene.http_port, scene.registry_port)
    for number in range(1_000):
        peer = await scene.connect(ports[number % 2])
        await peer.send(b"GET /subjects HTTP/1.1\r\nHost: localhost\r\nX: ")
    assert await answer(scene, "GET", "/subjects", b"") == 200


@attack()
async def lines_that_are_no_http(scene: Scene) -> None:
    """Each was a traceback in the log."""
    for _ in range(300):
        peer = await scene.connect(scene.http_port)
        await peer.send(b"GET / HTTP/1.1\r\nbroken\r\n\r\n")
        await peer.read()
        peer.close()
