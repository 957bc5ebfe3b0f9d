"""What somebody says to an action, and where its pages are. Pure."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from broker.console.confirming import RefusalError

NUMBER_DIGITS_MAX: Final = 9
TIME_EXAMPLE: Final = "2026-01-31T08:00"


class Parameters:
    """Texts by name, from an address and a form; what was not said is ""."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def get(self, name: str, default: str) -> str:
        """`default`: where it was not said at all."""
        return self._values.get(name, default)

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def number(self, name: str) -> int:
        """Raises RefusalError."""
        text = self.text(name).strip()
        if not re.fullmatch(rf"[0-9]{{1,{NUMBER_DIGITS_MAX}}}", text):
            raise RefusalError(f"Nothing was done: {name} is a number, not “{text[:40]}”.")
        return int(text)

    def time_ms(self, name: str) -> int:
        """A time in UTC, as ms since the epoch. Raises RefusalError."""
        text = self.text(name).strip()
        try:
            time = datetime.fromisoformat(text.removesuffix("Z"))
            return int(time.replace(tzinfo=UTC).timestamp() * 1000)
        except (ValueError, OverflowError) as error:
            said = f"Nothing was done: “{text[:40]}” is no time in UTC, as {TIME_EXAMPLE} is."
            raise RefusalError(said) from error


def topic_page(name: str, action: str = "") -> str:
    return f"/console/topic{action}?{urlencode({'name': name})}"


def group_page(group_id: str, action: str = "", **more: str) -> str:
    return f"/console/group{action}?{urlencode({'id': group_id} | more)}"


def transaction_page(transactional_id: str, action: str = "") -> str:
    return f"/console/transaction{action}?{urlencode({'id': transactional_id})}"
