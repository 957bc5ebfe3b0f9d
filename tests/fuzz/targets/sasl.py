"""What says who somebody is: messages of SASL's mechanisms, lines of sasl.jaas.config, files of a broker's
settings, subjects of certificates and the rules that map them. Nobody is let in who does not know, and
no mistake repeats a secret.

An input is a byte that says what it is for, and the parts with BETWEEN between them: the client's
messages; a rule and a name.
"""

import random
from collections.abc import Hashable
from typing import ClassVar

from typing_extensions import override

from broker.config import properties_text
from broker.config.listeners import listeners_of
from broker.rights.principal_names import NoRuleError, PrincipalRules, rfc2253
from broker.sasl import jaas
from broker.sasl.exchange import Authenticated, Challenge, Exchange
from broker.sasl.plain import PlainExchange, PlainUsers
from broker.sasl.scram import ScramExchange
from broker.sasl.scram_keys import credential_of, salted_password
from coordinator.commands.credential_commands import ScramMechanism
from coordinator.tables.administration.credentials import Credentials
from tests.fuzz.target import Target, WrongError, words
from tests.kit.certificates import name_of

BETWEEN = b"\n\0\n"
PLAIN, SCRAM, JAAS, RULES, SUBJECT, PROPERTIES = range(6)
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
    RULES: (
        b"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT"
        + BETWEEN
        + b"CN=kafka1,OU=ServiceUsers,O=x",
        b"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,RULE:(a+)+$/$0/U" + BETWEEN + b"cn=Alice,C=DE",
        b"RULE:^CN=(\\d+)\\,(.)/$2$1/,RULE:x/y/" + BETWEEN + b"CN=1\\,2",
        b"DEFAULT" + BETWEEN + b"CN=",
    ),
    SUBJECT: (
        name_of("CN=client1,O=Oracle").public_bytes(),
        name_of("CN=a\\,b\\+c,OU=\\#x,DC=example,UID=7").public_bytes(),
        name_of("CN=d\u00e9j\u00e0+OU=two,C=FR").public_bytes(),
    ),
    PROPERTIES: tuple(
        "\n".join(lines).encode()
        for lines in (
            (
                "listeners=SASL_SSL://:9093,PLAINTEXT://127.0.0.1:9092",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.password={SECRET}",
                "sasl.enabled.mechanisms=PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config=a.PlainLoginModule required \\",
                f'  user_alice="{SECRET}";',
            ),
            (
                "# Kafka's own",
                "listeners = INSIDE://[::1]:1,OUTSIDE://host:2",
                "advertised.listeners: OUTSIDE://out.example:9",
                "listener.security.protocol.map=INSIDE:SSL,OUTSIDE:SASL_PLAINTEXT",
                "listener.name.inside.ssl.client.auth = required",
                "ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/,DEFAULT",
                "ssl.enabled.protocols=TLSv1.3\\u002cTLSv1.2",
            ),
        )
    ),
}
_NONCES = ("client", "!~", "", "a" * 300, "r=", "cl,ient", "\u00e9")
_USERS = ("alice", "bob", "a=2Cb=3D", "", "=", "a" * 5000, "d\u00e9j\u00e0", "a,b", "=2", "\0")
_PROOFS = ("AAAA", "A" * 88, "", "====", "A", "\u00e9", "AA==")
_EXTENSIONS = ("", ",x=1", ",ext=1,m=2", ",m=", ",tokenauth=true", ",=")


def generated(rng: random.Random, kind: int) -> bytes:
    """Parts of an input of this kind, mostly in order; of SCRAM by its grammar (RFC 5802, section 7)."""
    if kind != SCRAM or rng.random() < 0.3:
        return rng.choice(MESSAGES[kind])
    nonce = rng.choice(_NONCES)
    header = rng.choice(("n,,", "n,,", "y,,", "n,a=alice,", "p=tls-unique,,", "", ","))
    first = f"{header}n={rng.choice(_USERS)},r={nonce}{rng.choice(_EXTENSIONS)}"
    told = rng.choice((nonce + "server", nonce + "server", nonce, "server"))
    binding = rng.choice(("biws", "biws", "eSws", "", "cD10bHMtdW5pcXVlLCw="))
    final = f"c={binding},r={told}{rng.choice(_EXTENSIONS)},p={rng.choice(_PROOFS)}"
    parts = [first, final, *([final] if rng.random() < 0.1 else [])]
    return BETWEEN.join(part.encode() for part in parts)


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
        return bytes([kind]) + generated(rng, kind)

    @override
    def run(self, data: bytes) -> Hashable:
        kind, rest = (data[0] if data else 0) % len(MESSAGES), data[1:]
        text = rest.decode("utf-8", "replace")
        if kind == JAAS:
            return self._read(text)
        if kind == RULES:
            return _mapped(text)
        if kind == SUBJECT:
            return _named(rest)
        if kind == PROPERTIES:
            return _listeners(text)
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


def _mapped(text: str) -> Hashable:
    """Who a subject is by rules."""
    rules, _, name = text.partition(BETWEEN.decode())
    try:
        return "mapped", len(PrincipalRules(rules).principal(name)) > 0
    except NoRuleError:
        return "no rule"
    except ValueError as error:
        return words(error)


def _named(subject: bytes) -> Hashable:
    """The subject of a certificate, from DER."""
    try:
        return "named", rfc2253(subject).count(",")
    except ValueError as error:
        return words(error)


def _listeners(text: str) -> Hashable:
    """The listeners of a file of settings."""
    try:
        given = dict(properties_text.parse("server.properties", text))
    except ValueError as error:
        return words(error)
    parsed = listeners_of(given)
    told = [*parsed.mistakes, *parsed.warnings]
    secret = ("password", "jaas")
    shown = [value for name, value in given.items() if not any(each in name for each in secret)]
    if SECRET in " ".join(told) and SECRET not in " ".join([*given, *shown]):
        raise WrongError("a mistake is told with the password in it")
    return len(parsed.listeners), tuple(map(words, parsed.mistakes))
