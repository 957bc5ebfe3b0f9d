"""A setting or config of Kafka's kind in one row: what it may be, its default, what stands in for it. Pure.

Kafka's broker settings (`kafka_settings`), the configs of topics (`topic_configs`), of their tables
(`table_configs`) and of groups (`group_configs`) are all rows of this one type, and are read by the
same rules, as strictly as Kafka reads them. `entries` says whose value holds.
"""

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import NamedTuple

from broker.config import values

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1


class Stance(Enum):
    """Where Frazil stands on one of Kafka's settings."""

    SERVED = "served"
    NOTHING = "means nothing here"
    NOT_YET = "not yet"


class Kind(IntEnum):
    """Types of settings, with the numbers that DescribeConfigs v3+ sends (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


Value = bool | int | float | str | tuple[str, ...]

_LIMITS = {
    Kind.SHORT: (-(1 << 15), (1 << 15) - 1),
    Kind.INT: (-(1 << 31), INT_MAX),
    Kind.LONG: (-(1 << 63), LONG_MAX),
}


class ConfigRow(NamedTuple):
    """One setting or config."""

    name: str
    kind: Kind
    default: str | None
    """In Kafka's spelling; None when Kafka has none."""
    documentation: str = ""
    minimum: int | None = None
    """Of a number; None: the smallest of its kind."""
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    """The words that it may be, or that a list may have; (): any."""
    synonyms: tuple[str, ...] = ()
    """Broker settings that stand in for it, the strongest first; hours and minutes converted."""
    check: Callable[[str], object] | None = None
    """What the fields above do not say. Raises ValueError with the end of a sentence."""
    any_case: bool = False
    """Kafka takes its words in any case."""
    bytes_max: int = 4096
    """Of the text of a topic's config: all of them must fit into one entry of the log."""
    distinct: bool = False
    """A list that has an item, and none twice."""
    stance: Stance = Stance.SERVED
    reason: str = ""
    """Why it is not served; "" when it is."""

    @property
    def default_text(self) -> str:
        """The default of a row that has one."""
        assert self.default is not None, self.name
        return self.default


def value_of(row: ConfigRow, text: str) -> Value:
    """`text` as the value of the row's type. Raises ValueError with the end of a sentence."""
    match row.kind:
        case Kind.BOOLEAN:
            return values.boolean(text)
        case Kind.SHORT | Kind.INT | Kind.LONG:
            least, most = _LIMITS[row.kind]
            return values.whole_number(
                text,
                minimum=least if row.minimum is None else row.minimum,
                maximum=most if row.maximum is None else row.maximum,
            )
        case Kind.DOUBLE:
            return _double(row, text)
        case Kind.LIST:
            items = tuple(item.strip() for item in text.split(",") if item.strip())
            _check_choices(row, items)
            if row.distinct and not 0 < len(items) == len(dict.fromkeys(items)):
                raise ValueError(f'"{text}" is empty or names one twice')
            return items
        case Kind.STRING | Kind.CLASS | Kind.PASSWORD:
            word = text.lower() if row.any_case else text
            _check_choices(row, (word,))
            return word


def refusal(row: ConfigRow, text: str) -> str | None:
    """Why the row may not have this value, the sentence for INVALID_CONFIG (40); None: it may."""
    try:
        value_of(row, text)
        if row.check is not None:
            row.check(text)
    except ValueError as error:
        return f"Invalid value {text} for configuration {row.name}: {error}"
    return None


def _double(row: ConfigRow, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a number') from None
    low, high = row.minimum, row.maximum
    # "nan" is a number that is between no others.
    if low is not None and high is not None and not low <= number <= high:
        raise ValueError(f"not between {low} and {high}")
    return number


def _check_choices(row: ConfigRow, items: tuple[str, ...]) -> None:
    for item in items:
        if row.choices and item not in row.choices:
            raise ValueError(f'"{item}" is none of {", ".join(row.choices)}')
