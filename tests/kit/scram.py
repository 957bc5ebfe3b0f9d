"""A client's side of SCRAM (RFC 5802), as plain as the RFC has it; it knows nothing of the product."""

import base64
import hashlib
import hmac


class ScramClient:
    """One attempt: `first`, then `final` with what the server has answered, then `verifies`."""

    def __init__(
        self,
        user: str,
        password: str,
        *,
        digest: str = "sha512",
        nonce: str = "client",
        header: str = "n,,",
        extensions: str = "",
    ) -> None:
        """`extensions`: ",tokenauth=true" of who shows a delegation token (KIP-48)."""
        self._digest = digest
        self._password = password.encode()
        self._nonce = nonce
        self._header = header
        self._bare = f"n={user},r={nonce}{extensions}"
        self._signature = b""

    def first(self) -> bytes:
        return f"{self._header}{self._bare}".encode()

    def final(
        self, answer: bytes, *, binding: str | None = None, nonce: str | None = None
    ) -> bytes:
        """`binding`, `nonce`: instead of the right ones."""
        fields = dict(item.split("=", 1) for item in answer.decode().split(","))
        assert fields["r"].startswith(self._nonce)
        told = base64.b64encode(self._header.encode()).decode() if binding is None else binding
        without_proof = f"c={told},r={nonce or fields['r']}"
        said = f"{self._bare},{answer.decode()},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(
            self._digest, self._password, base64.b64decode(fields["s"]), int(fields["i"])
        )
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        signature = self._hmac(stored_key, said)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), said)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verifies(self, answer: bytes) -> bool:
        """Whether the server has shown that it knows the user, too."""
        return answer == b"v=" + base64.b64encode(self._signature)

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._digest)
