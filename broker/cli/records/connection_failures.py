"""What librdkafka says of connections that it lost, in the words of the other commands. Pure.

sasl_ssl://localhost:9093/bootstrap: SASL authentication error: Authentication failed (after 105ms in state AUTH_REQ)
localhost:9093: Authentication failed (sasl.jaas.config has user and password)
"""

import re
from typing import Final

_TOLD: Final = re.compile(
    r"(?:[a-z_]+://)?(?P<address>\S+:[0-9]+)/(?:bootstrap|[0-9]+): (?P<reason>.*?)"
    r"(?: \(after [0-9]+ms in state (?P<state>[A-Z0-9_]+).*)?"
)
_LOGIN: Final = "SASL authentication error: "
_OF_TOKEN: Final = f"{_LOGIN}{{"
"""Of OAUTHBEARER's it is JSON that says why."""
_HANDSHAKE: Final = "mechanism handshake failed: "
_NO_TLS: Final = "ended TLS; does it speak it? (security.protocol)"
_WITHOUT_TLS: Final = (
    "closed the connection instead of answering (is it a Kafka listener without TLS? If not, or to log in:"
    " --command-config)"
)
_MEANT: Final = (
    (
        "certificate verify failed",
        ": its certificate is not taken (ssl.truststore.location says whom to trust)",
    ),
    ("PLAINTEXT broker listener", f" {_NO_TLS}"),
    ("SSL listener", f" {_WITHOUT_TLS}"),
)
"""By what is in a reason, as librdkafka has no codes for them."""


def sentence(text: str) -> str:
    """Where it went wrong, how, and which setting is about it; what has another form is left as it is."""
    found = _TOLD.fullmatch(text)
    if found is None:
        return text
    address, reason = found["address"], found["reason"]
    if found["state"] == "SSL_HANDSHAKE" and reason.startswith("Disconnected"):
        return f"{address} {_NO_TLS}"
    for part, meant in _MEANT:
        if part in reason:
            return f"{address}{meant}"
    if reason.startswith(_LOGIN) and not reason.startswith(_OF_TOKEN):
        return f"{address}: {reason.removeprefix(_LOGIN)} (sasl.jaas.config has user and password)"
    hint = " (sasl.mechanism)" if _HANDSHAKE in reason else ""
    return f"{address}: {reason}{hint}"
