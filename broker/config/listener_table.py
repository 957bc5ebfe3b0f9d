"""Kafka's settings of listeners, of TLS and of SASL that have an effect: name, type, default. Data only.

They are not fields of `KafkaSettings`, since each listener may have its own
(`broker.config.listeners`). Passwords are Kafka's type for what is never shown.
"""

from typing import Final

from broker.config.config_row import ConfigRow, Kind

MECHANISM_PREFIXES: Final = ("sasl.", "connections.max.reauth.ms")
"""What a SASL mechanism's settings begin with."""

_STORE_TYPES: Final = ("pem", "pkcs12", "jks")

LISTENER_TABLE: Final[dict[str, ConfigRow]] = {
    row.name: row
    for row in (
        ConfigRow("advertised.listeners", Kind.LIST, None),
        ConfigRow(
            "listener.security.protocol.map",
            Kind.STRING,
            "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        ),
        ConfigRow("listeners", Kind.LIST, "PLAINTEXT://:9092"),
        ConfigRow("connections.max.reauth.ms", Kind.LONG, "0", minimum=0),
        ConfigRow("sasl.enabled.mechanisms", Kind.LIST, "GSSAPI"),
        ConfigRow("sasl.jaas.config", Kind.PASSWORD, None),
        ConfigRow("sasl.oauthbearer.clock.skew.seconds", Kind.INT, "30", minimum=0),
        ConfigRow("sasl.oauthbearer.expected.audience", Kind.LIST, ""),
        ConfigRow("sasl.oauthbearer.expected.issuer", Kind.STRING, None),
        ConfigRow("sasl.oauthbearer.jwks.endpoint.refresh.ms", Kind.LONG, "3600000", minimum=1),
        ConfigRow(
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Kind.LONG, "10000", minimum=1
        ),
        ConfigRow("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Kind.LONG, "100", minimum=1),
        ConfigRow("sasl.oauthbearer.jwks.endpoint.url", Kind.STRING, None),
        ConfigRow("sasl.oauthbearer.scope.claim.name", Kind.STRING, "scope"),
        ConfigRow("sasl.oauthbearer.sub.claim.name", Kind.STRING, "sub"),
        ConfigRow("sasl.server.callback.handler.class", Kind.CLASS, None),
        ConfigRow("sasl.server.max.receive.size", Kind.INT, "524288", minimum=0),
        ConfigRow("ssl.cipher.suites", Kind.LIST, ""),
        ConfigRow(
            "ssl.client.auth",
            Kind.STRING,
            "none",
            choices=("none", "requested", "required"),
            any_case=True,
        ),
        ConfigRow(
            "ssl.enabled.protocols",
            Kind.LIST,
            "TLSv1.2,TLSv1.3",
            choices=("TLSv1.2", "TLSv1.3"),
        ),
        ConfigRow("ssl.key.password", Kind.PASSWORD, None),
        ConfigRow("ssl.keystore.certificate.chain", Kind.PASSWORD, None),
        ConfigRow("ssl.keystore.key", Kind.PASSWORD, None),
        ConfigRow("ssl.keystore.location", Kind.STRING, None),
        ConfigRow("ssl.keystore.password", Kind.PASSWORD, None),
        ConfigRow("ssl.keystore.type", Kind.STRING, "JKS", choices=_STORE_TYPES, any_case=True),
        ConfigRow("ssl.principal.mapping.rules", Kind.STRING, "DEFAULT"),
        ConfigRow("ssl.truststore.certificates", Kind.PASSWORD, None),
        ConfigRow("ssl.truststore.location", Kind.STRING, None),
        ConfigRow("ssl.truststore.password", Kind.PASSWORD, None),
        ConfigRow("ssl.truststore.type", Kind.STRING, "JKS", choices=_STORE_TYPES, any_case=True),
    )
}
"""By name."""
