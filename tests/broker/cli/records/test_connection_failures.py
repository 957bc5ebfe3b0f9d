"""What librdkafka says of lost connections, as our commands say it."""

import pytest

from broker.cli.records.connection_failures import sentence

AT = "sasl_ssl://localhost:9093/bootstrap: "


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        (
            (
                f"{AT}SASL authentication error: Authentication failed (after 105ms in state"
                " AUTH_REQ, 4 identical error(s) suppressed)"
            ),
            "localhost:9093: Authentication failed (sasl.jaas.config has user and password)",
        ),
        (
            (
                f"{AT}SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker"
                " certificate could not be verified (after 3ms in state SSL_HANDSHAKE, 1 identical error(s))"
            ),
            "localhost:9093: its certificate is not taken (ssl.truststore.location says whom to trust)",
        ),
        (
            (
                "ssl://[::1]:9093/7: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker"
                " listener? (after 3ms in state SSL_HANDSHAKE)"
            ),
            "[::1]:9093 ended TLS; does it speak it? (security.protocol)",
        ),
        (
            f"{AT}Disconnected: SSL connection closed by peer (after 0ms in state SSL_HANDSHAKE)",
            "localhost:9093 ended TLS; does it speak it? (security.protocol)",
        ),
        (
            f"{AT}Disconnected: SSL connection closed by peer (after 812ms in state UP)",
            "localhost:9093: Disconnected: SSL connection closed by peer",
        ),
        (
            (
                "localhost:9093/bootstrap: Disconnected while requesting ApiVersion: might be caused by"
                " incorrect security.protocol configuration (connecting to a SSL listener?)"
            ),
            (
                "localhost:9093 closed the connection instead of answering (is it a Kafka listener without"
                " TLS? If not, or to log in: --command-config)"
            ),
        ),
        (
            (
                f"{AT}SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's"
                " supported mechanisms: SCRAM-SHA-512 (after 1ms in state AUTH_HANDSHAKE)"
            ),
            (
                "localhost:9093: SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism:"
                " broker's supported mechanisms: SCRAM-SHA-512 (sasl.mechanism)"
            ),
        ),
        (
            (
                "localhost:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in"
                " state CONNECT)"
            ),
            "localhost:9092: Connect to ipv4#127.0.0.1:9092 failed: Connection refused",
        ),
        (
            f'{AT}SASL authentication error: {{"status":"invalid_token"}} (after 9ms in state AUTH_REQ)',
            'localhost:9093: SASL authentication error: {"status":"invalid_token"}',
        ),
        ("1/1 brokers are down", "1/1 brokers are down"),
    ],
)
def test_a_lost_connection_is_told_with_where_it_was_and_which_setting_is_about_it(
    told: str, meant: str
) -> None:
    assert sentence(told) == meant
