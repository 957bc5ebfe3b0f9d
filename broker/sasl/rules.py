"""What a SASL listener is set to: its mechanisms, their users or tokens, how long a session lasts. Pure.

Made of the raw settings of each enabled mechanism, which `broker.config` has resolved. A mechanism that
is not served is a mistake, since clients would be told of it; so is PLAIN without users, and a login
module that is another mechanism's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.config import values
from broker.config.config_row import INT_MAX, LONG_MAX
from broker.config.listeners import ListenerSettings
from broker.config.values import SettingsError
from broker.sasl import jaas
from broker.sasl.bearer import BearerExchange
from broker.sasl.bearer_messages import OAUTHBEARER
from broker.sasl.bearer_rules import token_rules
from broker.sasl.exchange import Exchange
from broker.sasl.plain import PLAIN, PlainExchange, PlainUsers
from broker.sasl.scram import ScramExchange, TokenLogins
from broker.sasl.scram_keys import BY_NAME
from broker.sasl.tokens import NO_KEYS, KeyPlace, SigningKeys, TokenRules
from coordinator.tables.administration.credentials import Credentials

FRAME_BYTES_MAX: Final = 524_288
"""Kafka's default of `sasl.server.max.receive.size`."""
SERVED: Final = (PLAIN, *BY_NAME, OAUTHBEARER)
JAAS_CONFIG: Final = "sasl.jaas.config"
MAX_REAUTH_MS: Final = "connections.max.reauth.ms"
MAX_RECEIVE: Final = "sasl.server.max.receive.size"
CALLBACK_HANDLER: Final = "sasl.server.callback.handler.class"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslRules:
    """Of one listener."""

    mechanisms: tuple[str, ...]
    """As clients are told of them, in the order of the setting."""
    plain_users: PlainUsers = field(default_factory=lambda: PlainUsers({}))
    tokens: TokenRules | None = None
    """Of OAUTHBEARER, where it is enabled."""
    lifetimes_ms: Mapping[str, int] = field(default_factory=dict)
    """Of sessions, by mechanism; 0: without end."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    """Of a connection that has not authenticated itself."""

    def lifetime_ms(self, mechanism: str) -> int:
        return self.lifetimes_ms.get(mechanism, 0)

    def exchange(
        self,
        mechanism: str,
        credentials: Credentials,
        *,
        nonce: str,
        keys: Callable[[str], SigningKeys] = lambda url: NO_KEYS,
        delegation: TokenLogins | None = None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> Exchange:
        """One attempt. `nonce`: for SCRAM; nobody can foresee it. `keys`: of a JWKS endpoint.
        `delegation`: None where delegation tokens are not served."""
        assert mechanism in self.mechanisms
        if mechanism == PLAIN:
            return PlainExchange(self.plain_users)
        if mechanism == OAUTHBEARER:
            assert self.tokens is not None
            return BearerExchange(self.tokens, keys=keys, now_ms=now_ms)
        return ScramExchange(
            BY_NAME[mechanism], credentials, nonce=nonce, tokens=delegation, now_ms=now_ms
        )


def rules_of(mechanisms: Mapping[str, Mapping[str, str]]) -> SaslRules:
    """The rules that these settings mean: for each enabled mechanism its own, by name.

    Raises ValueError with a sentence for each mistake, one a line; none repeats a value.
    """
    mistakes: list[str] = []
    found: dict[str, _Mechanism] = {}
    if not mechanisms:
        mistakes.append(f"sasl.enabled.mechanisms: none is enabled; served are {', '.join(SERVED)}")
    for mechanism, given in mechanisms.items():
        try:
            found[mechanism] = _mechanism(mechanism, given)
        except ValueError as error:
            mistakes.append(f"{mechanism}: {error}")
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return SaslRules(
        mechanisms=tuple(found),
        plain_users=PlainUsers.of(found[PLAIN].users if PLAIN in found else {}),
        tokens=found[OAUTHBEARER].tokens if OAUTHBEARER in found else None,
        lifetimes_ms={name: each.lifetime_ms for name, each in found.items()},
        frame_bytes_max=max(each.frame_bytes_max for each in found.values()),
    )


def rules_by_listener(listeners: Sequence[ListenerSettings]) -> dict[str, SaslRules]:
    """The rules of those listeners that speak SASL, by name. Raises SettingsError."""
    found: dict[str, SaslRules] = {}
    mistakes: list[str] = []
    for listener in listeners:
        if listener.protocol.has_sasl:
            try:
                found[listener.name] = rules_of(listener.mechanisms)
            except ValueError as error:
                told = str(error).splitlines()
                mistakes += [f"listener {listener.name}: {line}" for line in told]
    if mistakes:
        raise SettingsError(mistakes)
    return found


def key_places(rules: Iterable[SaslRules]) -> list[KeyPlace]:
    """Where the keys of tokens are fetched from, of listeners with these rules."""
    tokens = [each.tokens for each in rules if each.tokens is not None]
    return [each.keys for each in tokens if each.keys is not None]


class _Mechanism(NamedTuple):
    """What the settings of one say."""

    lifetime_ms: int
    frame_bytes_max: int
    users: Mapping[str, str]
    tokens: TokenRules | None = None


_MODULES: Final = {
    PLAIN: jaas.PLAIN_MODULE,
    OAUTHBEARER: jaas.BEARER_MODULE,
    **dict.fromkeys(BY_NAME, jaas.SCRAM_MODULE),
}


def _mechanism(mechanism: str, given: Mapping[str, str]) -> _Mechanism:
    """Raises ValueError with the end of a sentence."""
    if mechanism not in SERVED:
        raise ValueError(f"it is not served; served are {', '.join(SERVED)}")
    handler = given.get(CALLBACK_HANDLER, "").strip()
    if handler and mechanism != OAUTHBEARER:
        raise ValueError(f"{CALLBACK_HANDLER}: classes of Java cannot be run here")
    module = _module(mechanism, given.get(JAAS_CONFIG, ""))
    return _Mechanism(
        _number(given, MAX_REAUTH_MS, 0, maximum=LONG_MAX),
        _number(given, MAX_RECEIVE, FRAME_BYTES_MAX, maximum=INT_MAX),
        _users(module) if mechanism == PLAIN else {},
        token_rules(handler, given, module) if mechanism == OAUTHBEARER else None,
    )


def _number(given: Mapping[str, str], setting: str, default: int, *, maximum: int) -> int:
    try:
        return values.whole_number(given.get(setting, str(default)), minimum=0, maximum=maximum)
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from error


def _module(mechanism: str, text: str) -> jaas.LoginModule | None:
    """None: there is no line, as only PLAIN needs one."""
    if not text.strip():
        return None
    try:
        module = jaas.parse(text)
    except ValueError as error:
        raise ValueError(f"{JAAS_CONFIG}: {error}") from error
    if module.name != _MODULES[mechanism]:
        raise ValueError(f"{JAAS_CONFIG}: the login module is {_MODULES[mechanism]}")
    return module


def _users(module: jaas.LoginModule | None) -> Mapping[str, str]:
    """Passwords of PLAIN by user."""
    if module is None:
        example = f'{jaas.PLAIN_MODULE} required user_alice="…";'
        raise ValueError(f"{JAAS_CONFIG}: its users stand there ({example})")
    if not module.users():
        raise ValueError(f'{JAAS_CONFIG}: it names no user (user_alice="…")')
    return module.users()
