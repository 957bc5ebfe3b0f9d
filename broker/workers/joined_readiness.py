"""Whether several agents of one machine are ready, as one answer. Pure.

One that is ready is enough: only who serves listens at the shared ports, so clients find it. Why the others
are not is a note then, as whatever is no reason to send clients elsewhere.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

SILENT: Final = {"ready": False, "reasons": ["it does not answer, or is being started"]}


def join(told: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """`told`: what each said (`broker.admin.admin_view`), by worker; None: it did not answer."""
    each_said = {name: SILENT if said is None else said for name, said in told.items()}
    ready = any(said["ready"] for said in each_said.values())
    reasons = _of_each(each_said, "reasons")
    notes = [*(reasons if ready else ()), *_of_each(each_said, "notes")]
    joined: dict[str, Any] = {"ready": ready, "reasons": [] if ready else reasons}
    if codes := _codes(each_said.values()):
        joined["codes"] = codes
    if notes:
        joined["notes"] = notes
    if overloaded := _of_each(each_said, "overloaded"):
        joined["overloaded"] = overloaded
    return joined


def _codes(said: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({code for each in said for code in each.get("codes", ())})


def _of_each(said: Mapping[str, Mapping[str, Any]], key: str) -> list[str]:
    return [f"{name}: {sentence}" for name, each in said.items() for sentence in each.get(key, ())]
