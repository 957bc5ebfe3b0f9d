"""A delegation token as a file of a client's settings, ready for `--command-config`. Pure.

Of the file of whoever made the token it has what leads to the cluster: where that is, and whom TLS trusts. It has
nothing that whoever made it shows: no password, no key and no certificate.

Left out: files themselves (`broker.cli.tokens.arguments`).
"""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.config import properties_text
from broker.sasl.client import DELEGATED, JAAS_CONFIG, MECHANISM, PROTOCOL, jaas_options
from broker.sasl.scram_keys import BY_NAME

MECHANISM_DEFAULT: Final = "SCRAM-SHA-512"
TRUSTED: Final = "ssl.truststore.location"
_BOOTSTRAP: Final = "bootstrap.servers"
_OF_TLS: Final = (
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.truststore.certificates",
    TRUSTED,
    "ssl.truststore.password",
    "ssl.truststore.type",
)
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Way(NamedTuple):
    """How the cluster is reached by a token, as whoever made it reaches it."""

    settings: Mapping[str, str]
    """The client's."""
    bootstrap: str
    mechanism: str | None
    """None: the one that was logged in by, if it is SCRAM."""

    @property
    def has_sasl(self) -> bool:
        """Without it tokens are shown to another listener of the cluster."""
        return self._protocol.startswith("SASL_")

    @property
    def _protocol(self) -> str:
        return self.settings.get(PROTOCOL, "PLAINTEXT").strip().upper()

    def text(self, token_id: str, hmac: str) -> str:
        """The file of a token."""
        own = self.settings.get(MECHANISM, "").strip().upper()
        options = f'username="{token_id}" password="{hmac}" {DELEGATED}="true"'
        found = {
            **({_BOOTSTRAP: self.bootstrap} if self.has_sasl else {}),
            PROTOCOL: f"SASL_{self._protocol.removeprefix('SASL_')}",
            MECHANISM: self.mechanism or (own if own in BY_NAME else MECHANISM_DEFAULT),
            JAAS_CONFIG: f"{_MODULE} required {options};",
            **{name: self.settings[name] for name in _OF_TLS if name in self.settings},
        }
        lines = [f"{name}={properties_text.escaped(value)}" for name, value in found.items()]
        return "\n".join([f"# Delegation token {token_id}", *lines, ""])


def hmac_in(text: str) -> bytes:
    """The HMAC in a text that is nothing else, in base64, or that is the file of a token. Raises ValueError with
    the end of a sentence, which repeats no secret."""
    said = text.strip()
    if JAAS_CONFIG in said:
        options = jaas_options(dict(properties_text.parse("it", said)))
        if options.get(DELEGATED, "").lower() != "true":
            raise ValueError("it is the file of a user, and of no token")
        said = options.get("password", "")
    try:
        found = b64decode(said, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not found:
        raise ValueError("there is no HMAC in base64")
    return found
