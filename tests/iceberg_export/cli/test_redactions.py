"""`frazil export redact`, and what `verify` says afterwards."""

import getpass


def test_redact_wants_a_yes_and_verify_says_who_it_was_and_why(frazil):
    frazil("run", "--once")
    wanted = ("redact", "--topic", "orders", "--where", "kafka_offset < 2", "--by", "ada")
    code, _out, err = frazil(*wanted)
    assert code == 2
    assert "2 rows would leave table frazil.orders for good; say --yes to do it" in err
    code, out, _err = frazil(*wanted, "--yes")
    assert code == 0
    assert out.startswith("orders: 2 rows left table frazil.orders, redacted by ada; older snapsh")
    code, out, _err = frazil("verify", "--topic", "orders")
    assert code == 0
    assert "orders: 3 records, each exactly once" in out
    assert "; less 2 redacted: 2 by ada on " in out
    assert "(kafka_offset < 2)" in out


def test_a_user_without_a_name_is_asked_for_one(frazil, monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 10001")

    monkeypatch.setattr(getpass, "getuser", nobody)
    frazil("run", "--once")
    code, _out, err = frazil("redact", "--topic", "orders", "--where", "kafka_offset < 2", "--yes")
    assert (code, "say --by who redacts" in err) == (2, True)
    assert "each exactly once" in frazil("verify", "--topic", "orders")[1]
