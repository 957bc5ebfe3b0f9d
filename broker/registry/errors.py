"""Refusals of the registry, with the codes that Confluent's clients know. Pure."""

from typing import Any, Final

INCOMPATIBLE: Final = 409
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 40301
NOT_FOUND: Final = 404
INVALID_REQUEST: Final = 422
TOO_MANY: Final = 429
SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
NO_LEVEL_OF_ITS_OWN: Final = 40408
NO_MODE_OF_ITS_OWN: Final = 40409
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
NOT_PERMITTED: Final = 42205
REFERENCE_EXISTS: Final = 42206
ID_TAKEN: Final = 42207
INVALID_SUBJECT: Final = 42208
SCHEMA_TOO_LARGE: Final = 42209
STORE_ERROR: Final = 50001
TIMED_OUT: Final = 50002


class RegistryError(Exception):
    """The answer is an error: a code whose first three digits are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100

    @property
    def view(self) -> dict[str, Any]:
        return {"error_code": self.code, "message": str(self)}
