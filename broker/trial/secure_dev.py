"""`frazil dev --secure`: what lies in `secure/` below its data, and the settings that follow from it.

    ca.pem, ca-key.pem, agent.pem        an authority, and the agent's key store for this machine's names
    admin.password, app.password         drawn at the first start
    admin.properties                     a super user: Kafka's tools, and ours (--command-config)
    client.properties                    the user app: Java's clients and Kafka's tools
    librdkafka.config, kafka_python.py   the user app, for those clients
    users-made                           users and rights were made once: what was taken away stays so

All of it is kept over restarts, and is its user's alone. The certificate is made anew when an agent
starts and it has less than a month left, or was another authority's.

Left out: making users and rights in the log (`broker.cli.dev` asks the agent, as any client does).
"""

import re
import secrets
from pathlib import Path
from typing import Final

from broker.sasl import jaas
from broker.trial import certificate_files, client_files
from broker.trial.certificate_files import CertificateError, write_private
from broker.trial.client_files import ClientAccess

LISTENER: Final = "SASL_SSL"
ADMIN: Final = "admin"
APP: Final = "app"
MECHANISM: Final = "SCRAM-SHA-512"
HOSTS: Final = ("localhost", "127.0.0.1", "::1")
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AGENT: Final = "agent"
DAYS: Final = 365
RENEW_DAYS: Final = 30
PASSWORD_BYTES: Final = 24
"""Drawn; in base64 of URLs no character needs quoting."""
_PASSWORD: Final = re.compile(r"[A-Za-z0-9_-]{16,}")


class SecureFolder:
    """`secure/` of one data folder."""

    def __init__(self, data: Path, *, now_ms: int) -> None:
        """Makes what is missing. Raises CertificateError, and OSError."""
        self.path = data.absolute() / "secure"
        self._ca = self.path / certificate_files.CA
        self._key_store = self.path / f"{AGENT}.pem"
        certificate_files.authority_of(self.path, now_ms)
        if certificate_files.days_left(self._key_store, self._ca, now_ms) < RENEW_DAYS:
            certificate_files.create(self.path, AGENT, HOSTS, now_ms=now_ms, days=DAYS, renew=True)
        self.passwords = {user: self._password(user) for user in (ADMIN, APP)}

    @property
    def settings(self) -> dict[str, str]:
        """Defaults of the agent, which stand behind all that is set."""
        users = " ".join(f'user_{user}="{word}"' for user, word in self.passwords.items())
        of_plain = f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config"
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._key_store),
            "sasl.enabled.mechanisms": f"{MECHANISM},PLAIN",
            of_plain: f"{jaas.PLAIN_MODULE} required {users};",
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{ADMIN}",
        }

    @property
    def users_made(self) -> bool:
        """Whether users and rights were made once."""
        return (self.path / "users-made").exists()

    def remember_users(self) -> None:
        write_private(self.path / "users-made", b"")

    def forget_users(self) -> None:
        """For a log that does not know them."""
        (self.path / "users-made").unlink(missing_ok=True)

    def write_clients(self, bootstrap: str) -> None:
        """Write the files for clients, of an agent that is reached there. Raises OSError."""
        admin, app = (self._access(bootstrap, user) for user in (ADMIN, APP))
        for name, text in (
            ("admin.properties", client_files.java(admin)),
            ("client.properties", client_files.java(app)),
            ("librdkafka.config", client_files.librdkafka(app)),
            ("kafka_python.py", client_files.kafka_python(app)),
        ):
            write_private(self.path / name, text.encode())

    def _access(self, bootstrap: str, user: str) -> ClientAccess:
        return ClientAccess(
            bootstrap=bootstrap,
            ca=str(self._ca),
            mechanism=MECHANISM,
            user=user,
            password=self.passwords[user],
        )

    def _password(self, user: str) -> str:
        file = self.path / f"{user}.password"
        if file.exists():
            found = file.read_text(encoding="utf-8").strip()
            if not _PASSWORD.fullmatch(found):
                raise CertificateError(
                    f"{file} is not as it was drawn; without it another is drawn"
                )
            return found
        drawn = secrets.token_urlsafe(PASSWORD_BYTES)
        write_private(file, drawn.encode())
        # The log has the password before, if it has any.
        self.forget_users()
        return drawn
