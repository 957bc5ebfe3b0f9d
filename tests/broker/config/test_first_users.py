"""The setting first.users, as kafka-storage.sh's --add-scram has it."""

import base64

import pytest

from broker.config.first_users import FirstUser, first_users

SECRET = "hunter2"


def user(name="alice", mechanism="SCRAM-SHA-512", **more) -> FirstUser:
    given = {"iterations": 4096, "password": None, "salt": None, "salted_password": None}
    return FirstUser(name=name, mechanism=mechanism, **(given | more))


def test_several_users_are_separated_by_commas():
    assert first_users(
        "SCRAM-SHA-512=[name=alice,password=a b], SCRAM-SHA-256=[name=bob,iterations=8192,password=c]"
    ) == (
        user(password="a b"),
        user("bob", "SCRAM-SHA-256", iterations=8192, password="c"),
    )


def test_nothing_is_no_user():
    assert first_users(" ") == ()


def test_a_salted_password_comes_with_its_salt_in_base64():
    salt, salted = base64.b64encode(b"salt").decode(), base64.b64encode(b"salted").decode()
    text = f'SCRAM-SHA-256=[name=alice,salt="{salt}",saltedpassword="{salted}",iterations=4096]'
    assert first_users(text) == (
        user(mechanism="SCRAM-SHA-256", salt=b"salt", salted_password=b"salted"),
    )


@pytest.mark.parametrize(
    "text",
    [
        f"alice:{SECRET}",
        f"GSSAPI=[name=alice,password={SECRET}]",
        f"SCRAM-SHA-1=[name=alice,password={SECRET}]",
        f"SCRAM-SHA-512=[password={SECRET}]",
        "SCRAM-SHA-512=[name=alice]",
        f"SCRAM-SHA-512=[name=alice,password={SECRET},password={SECRET}]",
        f"SCRAM-SHA-512=[name=alice,password={SECRET},iterations=4095]",
        f"SCRAM-SHA-512=[name=alice,password={SECRET},iterations=99999]",
        f"SCRAM-SHA-512=[name=alice,password={SECRET},colour=red]",
        f"SCRAM-SHA-512=[name=alice,saltedpassword={SECRET}]",
        f"SCRAM-SHA-512=[name=alice,salt=!,saltedpassword={SECRET}]",
        f"SCRAM-SHA-512=[name=a,password={SECRET}],SCRAM-SHA-512=[name=a,password={SECRET}]",
        f"SCRAM-SHA-512=[name=a,password={SECRET}] SCRAM-SHA-256=[name=a,password={SECRET}]",
    ],
)
def test_a_mistake_is_told_without_a_secret(text):
    with pytest.raises(ValueError, match=r".") as told:
        first_users(text)
    assert SECRET not in str(told.value)


def test_a_user_is_shown_without_its_password():
    assert SECRET not in repr(user(password=SECRET))
