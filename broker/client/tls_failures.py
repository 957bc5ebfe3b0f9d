"""Why there is no TLS with an agent, as the ends of sentences about it.

Apart from `broker.client.client_tls`, since tools without TLS should not wait for what reads certificates.
"""

import ssl


def is_passing(error: ssl.SSLError) -> bool:
    """Whether the other side has only gone away, as an agent that leaves does."""
    return isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)


def sentence(error: ssl.SSLError) -> str:
    """What went wrong, and which setting of the client is about it."""
    reason = (error.reason or "").replace("_", " ").lower() or str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not taken: {error.verify_message.rstrip('.')}"
            " (ssl.truststore.location says whom to trust)"
        )
    if "alert" in reason:
        return f"it refuses the connection: {reason} (ssl.keystore.location is what one shows)"
    return f"there is no TLS with it: {reason} (security.protocol)"
