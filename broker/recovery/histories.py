"""What follows upon a snapshot by the archives of a log, where some of them contradict others.

Archives of one log may do so: those by agents that went past an entry which was voided later (`frazil log void`), and those by
agents that passed over it. What an archive has of the log holds all the same, but for whether an entry is void; and its
digest is of another machine. Archives of two logs have other entries at the same positions.

What holds: the machine is that of all entries up to where it is, without those that any archive beside the way has as
void: nobody takes back a voiding. The digest at the end of each archive on the way says so (P13). An archive with
another digest is passed by where others lead on, and told. Where none does, and where entries differ, nothing
here says what is right: a sentence names the objects.

A machine cannot go back: each other way begins with the snapshot again.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Final

from broker.recovery.archive_chain import ArchiveRange, FurthestFirst, overlapping
from broker.recovery.archives import Archives
from broker.recovery.outcome import ContradictionError, Rebuilt, Until
from broker.reports.log_lines import place
from coordinator.commands.codec import CodecError, decode_entry
from coordinator.machine.machine import Machine
from coordinator.replica import BUGS
from coordinator.snapshot.store import run_steps
from protocol.types import Position
from storage.formats.log_archive import ArchivedEntry, LogArchive

ATTEMPTS_MAX: Final = 100
"""Each passes by one archive more. A voided entry takes two or three."""
MOVE_AWAY: Final = "move out of the object store what is not of this cluster's log"

Step = tuple[Position, ArchiveRange]
"""An archive, and where the machine was that it was applied to."""


class Histories:
    """The ways on from one snapshot; `rebuilt` is called once."""

    def __init__(
        self,
        archives: Archives,
        begin: Callable[[], Awaitable[Machine]],
        until: Until,
        *,
        tell: Callable[[str], None],
    ) -> None:
        """`begin`: has the snapshot's machine, a new one each time."""
        self._archives = archives
        self._begin = begin
        self._until = until
        self._tell = tell
        self._refused: dict[ArchiveRange, str] = {}
        """What does not follow upon a machine that passes over what is known as void, and why."""
        self._outdated: dict[ArchiveRange, str] = {}
        """What has an entry that was voided since."""
        self._digests: dict[Position, bytes] = {}
        """Of the machine, where archives end."""

    async def rebuilt(self) -> Rebuilt:
        """Raises ContradictionError, StoreError and what `begin` raises."""
        for _ in range(ATTEMPTS_MAX):
            found = await self._attempt()
            if found is not None:
                return found
        passed = sorted(self._refused | self._outdated)
        names = ", ".join([each.key for each in passed])
        end = max([each.last for each in passed])
        raise ContradictionError(f"too many archives contradict others: {names}", end)

    async def _attempt(self) -> Rebuilt | None:
        """None: there is another way."""
        machine = await self._begin()
        rebuilt = Rebuilt(machine, machine.position)
        path = await self._go(rebuilt)
        if path is None or await self._find_outdated(rebuilt, path):
            return None
        if not rebuilt.stopped and machine.position != self._until.position:
            self._must_be_end(machine.position)
        return rebuilt

    async def _go(self, rebuilt: Rebuilt) -> list[Step] | None:
        """As far as archives lead; None: one of them did not follow, and what was made is worth nothing."""
        machine, path = rebuilt.machine, list[Step]()
        self._digests.clear()
        links = self._links(rebuilt.begun)
        while not rebuilt.stopped and (link := links.next(at := machine.position)) is not None:
            archive = await self._archives.read(link)
            if archive is None:
                links = self._links(rebuilt.begun)
                continue
            if reason := await run_steps(self._applying(rebuilt, archive)):
                self._refused[link] = reason
                return None
            path.append((at, link))
            self._tell(f"archive {len(path)}: at {place(machine.position)}")
        return path

    def _links(self, begun: Position) -> FurthestFirst:
        passed = self._refused.keys() | self._outdated.keys()
        ranges = [each for each in self._archives.ranges if each.last > begun]
        for each in ranges:
            self._digests.setdefault(each.last, b"")
        return FurthestFirst([each for each in ranges if each not in passed])

    def _applying(self, rebuilt: Rebuilt, archive: LogArchive) -> Generator[None, None, str]:
        """Returns why the archive does not follow upon the machine, which is spoilt then; "": it does."""
        machine = rebuilt.machine
        for each in archive.entries:
            if each.position <= machine.position:
                continue
            try:
                entry = None if each.voided else decode_entry(each.payload)
                if not self._until.takes_entry(each.position, entry):
                    rebuilt.stopped = True
                    return ""
                if entry is None:
                    machine.void(each.position, session=each.session, n=each.n)
                else:
                    machine.apply(each.position, entry)
                    rebuilt.clock_ms = entry.clock_ms
            except (CodecError, *BUGS) as error:
                return (
                    f"has an entry at {place(each.position)} that cannot be applied: {error!r}. Recover to before it"
                    " (--to-position), or by the release that wrote it"
                )
            rebuilt.entries += 1
            if each.position in self._digests:
                self._digests[each.position] = machine.digest()
            yield
        if machine.position == archive.last and machine.digest() != archive.digest:
            return (
                f"contradicts the snapshot at {place(rebuilt.begun)} with the {rebuilt.entries} entries behind it"
                " that are archived (P13): one of them is damaged, or not of this cluster's log"
            )
        return ""

    def _must_be_end(self, reached: Position) -> None:
        """Nothing that was passed by leads on from there. Raises ContradictionError."""
        against = {
            each: clause
            for each, clause in (self._refused | self._outdated).items()
            if each.after <= reached < each.last
        }
        if against:
            clauses = [f"{each.key} {clause}" for each, clause in sorted(against.items())]
            raise ContradictionError(
                "; ".join(clauses)
                + f". All up to {place(reached)} agrees: recover to there (--to-position {place(reached)}), or {MOVE_AWAY}",
                reached,
            )

    # What was passed by.

    async def _find_outdated(self, rebuilt: Rebuilt, path: list[Step]) -> bool:
        """Whether an entry was applied that an archive beside the way has as void. Raises ContradictionError."""
        reached, used = rebuilt.machine.position, {link for _, link in path}
        outdated: dict[ArchiveRange, str] = {}
        for link in overlapping(self._archives.ranges, rebuilt.begun, reached):
            if link in used or link in self._outdated:
                continue
            archive = await self._archives.read_beside(link)
            if archive is None or self._digests.get(link.last) == archive.digest:
                continue
            outdated |= await self._outdated_by(archive, path, reached)
            if link.last <= reached:
                rebuilt.troubles.append(f"{link.key} has the digest of another machine: left out")
        if outdated:
            self._outdated |= outdated
            self._refused.clear()  # Another machine will come there.
        told = [f"{each.key} {clause}: left out" for each, clause in sorted(self._outdated.items())]
        rebuilt.troubles += told
        return bool(outdated)

    async def _outdated_by(
        self, archive: LogArchive, path: list[Step], reached: Position
    ) -> dict[ArchiveRange, str]:
        """Archives of the way. Raises ContradictionError."""
        own = {
            each.position: each for each in archive.entries if path[0][0] < each.position <= reached
        }
        outdated: dict[ArchiveRange, str] = {}
        for at, link in path:
            after, last = max(at, archive.after), min(link.last, archive.last, reached)
            if after >= last:
                continue
            applied = await self._archives.read_beside(link)
            if applied is None:
                return outdated  # It was deleted meanwhile.
            for each in applied.entries:
                if not after < each.position <= last:
                    continue
                other = own.pop(each.position, None)
                if other is None or not _is_same(each, other):
                    raise _differ(archive, link, each.position)
                if other.voided and not each.voided:
                    outdated[link] = f"has an entry at {place(each.position)} that was voided since"
        if own:
            raise _differ(archive, path[-1][1], min(own))
        return outdated


def _is_same(one: ArchivedEntry, other: ArchivedEntry) -> bool:
    """But for that one of them may be void."""
    return (one.session, one.n, one.payload) == (other.session, other.n, other.payload)


def _differ(archive: LogArchive, link: ArchiveRange, at: Position) -> ContradictionError:
    own = ArchiveRange(archive.after, archive.last).key
    return ContradictionError(
        f"{own} and {link.key} differ about the entry at {place(at)}: they are of two logs. Recover to before that"
        f" (--to-position), or {MOVE_AWAY}",
        at,
    )
