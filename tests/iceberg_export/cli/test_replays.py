"""`frazil export replay`: what it says of letters that became rows, and of those that stay."""

from protocol.records import Record

STRICT = {"value.mode": "json", "value.schema": "infer", "schema.evolution": "strict"}


def test_letters_whose_field_may_become_a_column_by_now_become_rows(world, frazil):
    world.create("events", 1)

    def send(*values):
        world.commit("events", {0: [[Record(timestamp=1, key=None, value=one) for one in values]]})

    world.configs["events"] = STRICT
    send(b'{"a": 1}')
    frazil("run", "--once", "--topics", "events")
    send(b'{"a": 2, "b": "x"}', b"{")
    assert frazil("run", "--once", "--topics", "events")[0] == 4
    world.configs["events"] = {**STRICT, "schema.evolution": "add"}
    code, out, _err = frazil("replay", "--topic", "events")
    assert code == 0
    assert out.startswith(
        "events: 1 dead letters became rows of table frazil.events; 1 stay: 1 UNDECODABLE (partition 0, "
        "offset 2: "
    )
    code, out, _err = frazil("verify", "--topic", "events")
    assert (code, "each exactly once" in out) == (0, True)


def test_a_topic_without_letters_has_none_left(frazil):
    frazil("run", "--once")
    code, out, _err = frazil("replay", "--topic", "orders")
    assert (code, out) == (
        0,
        "orders: 0 dead letters became rows of table frazil.orders; none is left\n",
    )
