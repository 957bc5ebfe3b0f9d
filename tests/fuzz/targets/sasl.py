"""Messages of SASL's mechanisms, and lines of sasl.jaas.config: nobody is let in who does not know.

An input is a byte that says what it is for, and the client's messages with BETWEEN between them.
"""

import random
from collections.abc import Hashable
from typing import ClassVar

from typing_extensions import override

from broker.sasl import jaas
from broker.sasl.exchange import Authenticated, Challenge, Exchange
from broker.sasl.plain import PlainExchange, PlainUsers
from broker.sasl.scram import ScramExchange, credential_of, salted_password
from coordinator.commands.credential_commands import ScramMechanism
from coordinator.tables.credentials import Credentials
from tests.fuzz.target import Target, WrongError

BETWEEN = b"\n\0\n"
PLAIN, SCRAM, JAAS = range(3)
SECRET = "s3cret"
MESSAGES = {
    PLAIN: (b"\0alice\0wrong", b"alice\0alice\0", b"\0bob\0\xc3\xa4", b"\0\0\0"),
    SCRAM: (
        b"n,,n=alice,r=client" + BETWEEN + b"c=biws,r=clientserver,p=AAAA",
        b"y,a=bob,n=bob,r=client,x=1" + BETWEEN + b"c=eSxhPWJvYiw=,r=clientserver,p=" + b"A" * 88,
        b"n,,n=a=2Cb=3D,r=!~" + BETWEEN + b"c=biws,r=!~server,ext=1,p=AA==",
        b"p=tls-unique,,n=alice,r=client",
    ),
    JAAS: (
        f'a.PlainLoginModule required user_alice="{SECRET}";'.encode(),
        b"a.Module REQUIRED // who\n x='y\\'z' /* and */ n=1 ;",
        b'a.Module required x="\\101\\n" ; b.Module required;',
    ),
}


class Sasl(Target):
    name: ClassVar[str] = "sasl"

    def __init__(self) -> None:
        kind = ScramMechanism.SCRAM_SHA_256
        salted = salted_password(kind, SECRET, salt=b"salt", iterations=4096)
        self._credentials = Credentials()
        self._credentials.apply(credential_of("alice", kind, salted, salt=b"salt", iterations=4096))
        self._users = PlainUsers.of({"alice": SECRET})

    @override
    def generate(self, rng: random.Random) -> bytes:
        kind = rng.choice([*MESSAGES])
        return bytes([kind]) + rng.choice(MESSAGES[kind])

    @override
    def run(self, data: bytes) -> Hashable:
        kind, rest = (data[0] if data else 0) % len(MESSAGES), data[1:]
        if kind == JAAS:
            return self._read(rest.decode("utf-8", "replace"))
        if kind == PLAIN:
            return self._talk(PlainExchange(self._users), [rest])
        exchange = ScramExchange(ScramMechanism.SCRAM_SHA_256, self._credentials, nonce="server")
        return self._talk(exchange, rest.split(BETWEEN))

    def _talk(self, exchange: Exchange, messages: list[bytes]) -> Hashable:
        steps: list[Hashable] = []
        for message in messages:
            step = exchange.respond(message)
            if isinstance(step, Authenticated) and SECRET.encode() not in message:
                raise WrongError(f"let in as {step.user}")
            steps.append(type(step).__name__ + getattr(step, "reason", ""))
            if not isinstance(step, Challenge):
                break
        return tuple(steps)

    def _read(self, text: str) -> Hashable:
        try:
            module = jaas.parse(text)
        except ValueError as error:
            if SECRET in str(error):
                raise WrongError("a mistake is told with the password in it") from error
            return f"refused: {error}"
        return len(module.options), len(module.users())
