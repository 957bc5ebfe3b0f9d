"""Passwords, held against users of settings and of the log."""

import asyncio

import pytest

from broker.http import passwords as module
from broker.http.passwords import CHECKS_PER_ADDRESS_MAX, BusyError, Passwords
from broker.sasl.plain import PlainUsers
from broker.sasl.scram_keys import credential_of, salted_password
from coordinator.commands.credential_commands import (
    DeleteScramCredential,
    ScramMechanism,
    UpsertScramCredential,
)
from coordinator.tables.administration.credentials import Credentials

SHA_256, SHA_512 = ScramMechanism


def upsert(user: str, password: str, mechanism: ScramMechanism = SHA_512) -> UpsertScramCredential:
    salted = salted_password(mechanism, password, salt=b"salt", iterations=4096)
    return credential_of(user, mechanism, salted, salt=b"salt", iterations=4096)


class Stage:
    """Users of the log, and how often passwords were worked on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *mechanisms: ScramMechanism) -> None:
        self.credentials = Credentials()
        self.proofs = 0
        self.passwords = Passwords(
            plain=PlainUsers.of({"carl": "plain"}),
            mechanisms=mechanisms,
            credentials=lambda: self.credentials,
            key=b"k",
        )
        prove = module.proves

        def counted(*arguments) -> bool:
            self.proofs += 1
            return prove(*arguments)

        monkeypatch.setattr(module, "proves", counted)

    async def right(self, user: str, password: str, address: str = "10.0.0.1") -> bool:
        return await self.passwords.are_right(user, password, address=address)


async def test_users_of_settings_need_no_work(monkeypatch) -> None:
    stage = Stage(monkeypatch)
    assert await stage.right("carl", "plain")
    assert not await stage.right("carl", "wrong")
    assert not await stage.right("dora", "plain")
    assert stage.proofs == 0


@pytest.mark.parametrize("mechanism", [*ScramMechanism])
async def test_a_user_of_the_log_has_the_password_of_scram(monkeypatch, mechanism) -> None:
    stage = Stage(monkeypatch, SHA_256, SHA_512)
    stage.credentials.apply(upsert("ann", "s3cret", mechanism))
    assert await stage.right("ann", "s3cret")
    assert not await stage.right("ann", "S3cret")
    assert not await stage.right("anna", "s3cret")


async def test_users_of_mechanisms_that_are_not_enabled_do_not_count(monkeypatch) -> None:
    stage = Stage(monkeypatch, SHA_256)
    stage.credentials.apply(upsert("ann", "s3cret", SHA_512))
    assert not await stage.right("ann", "s3cret")


async def test_what_was_right_is_remembered_until_the_credential_is_another(monkeypatch) -> None:
    stage = Stage(monkeypatch, SHA_512)
    stage.credentials.apply(upsert("ann", "s3cret"))
    for _ in range(3):
        assert await stage.right("ann", "s3cret")
    assert stage.proofs == 1
    stage.credentials.apply(upsert("ann", "changed"))
    assert not await stage.right("ann", "s3cret")
    assert await stage.right("ann", "changed")
    stage.credentials.apply(DeleteScramCredential("ann", SHA_512))
    assert not await stage.right("ann", "changed")


@pytest.mark.parametrize("there", [(), (SHA_256,), (SHA_512,), (SHA_256, SHA_512)])
async def test_as_much_is_done_for_each_user_whether_there_is_one_or_not(
    monkeypatch, there
) -> None:
    stage = Stage(monkeypatch, SHA_256, SHA_512)
    stage.credentials.apply(upsert("somebody", "else"))
    for mechanism in there:
        stage.credentials.apply(upsert("ann", "s3cret", mechanism))
    assert not await stage.right("ann", "wrong")
    assert stage.proofs == 2


@pytest.mark.real_loop
async def test_one_address_has_so_many_passwords_looked_at_and_no_more(monkeypatch) -> None:
    stage = Stage(monkeypatch, SHA_512)
    stage.credentials.apply(upsert("ann", "s3cret"))
    async with asyncio.TaskGroup() as tasks:
        for number in range(CHECKS_PER_ADDRESS_MAX):
            tasks.create_task(stage.right("ann", f"wrong {number}"))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await stage.right("ann", "s3cret")
        assert await stage.right("ann", "s3cret", address="10.0.0.2")
    assert await stage.right("ann", "s3cret")
