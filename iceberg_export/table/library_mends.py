"""What PyIceberg gets wrong at the ends of types, set right in this process by `mend`.

* Doubles that manifests hold as partition values are read as floats, and written so when manifests
  are merged: the file then is of a partition that none of its rows is in.
* A commit says each file's partition as text, for which it asks Python's calendar. That one ends
  with the year 9999, so no commit with a later day ever gets in. Such moments are said as numbers.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from pyiceberg.avro import reader
from pyiceberg.utils import datetime as moments

_DOUBLE = Struct("<d")
_SAID = ("to_human_day", "to_human_hour", "to_human_timestamp", "to_human_timestamptz")


def _read_double(_self: Any, decoder: Any) -> float:
    found: float = _DOUBLE.unpack(decoder.read(_DOUBLE.size))[0]
    return found


def _without_end(say: Callable[[int], str]) -> Callable[[int], str]:
    def said(ordinal: int) -> str:
        try:
            return say(ordinal)
        except OverflowError:
            return str(ordinal)

    return said


def mend() -> None:
    """Once in a process is enough, more often does no harm."""
    for name in _SAID:
        setattr(moments, name, _without_end(getattr(moments, name)))
    setattr(reader.DoubleReader, "read", _read_double)  # noqa: B010 - mypy knows better.
