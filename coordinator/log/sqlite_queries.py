"""What is asked of the file of a log: how far it reaches, and of its sessions."""

import sqlite3
from collections.abc import Sequence

from coordinator.log.metadata_log import LAST_UNKNOWN, LiveSessionsError, Session
from protocol.types import Incarnation, position


def head_of(connection: sqlite3.Connection) -> int:
    """The newest revision; the entry itself may have been cut. 0: there was none."""
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entry'").fetchone()
    return 0 if found is None else int(found[0])


def opened_at(connection: sqlite3.Connection, session: int) -> int | None:
    """The revision of entry 0 of a session that is open."""
    (opened,) = connection.execute(
        "SELECT max(at) FROM (SELECT revision AS at FROM entry WHERE session = ?1 AND n = 0"
        " UNION ALL SELECT opened FROM newest WHERE session = ?1)",
        (session,),
    ).fetchone()
    return None if opened is None else int(opened)


def last_of(connection: sqlite3.Connection, session: int) -> int:
    (last,) = connection.execute(
        "SELECT max(n) FROM (SELECT max(n) AS n FROM entry WHERE session = ?1"
        " UNION ALL SELECT n FROM newest WHERE session = ?1)",
        (session,),
    ).fetchone()
    if last is not None:
        return int(last)
    (forgotten,) = connection.execute("SELECT forgotten FROM bound").fetchone()
    return LAST_UNKNOWN if session <= forgotten else -1


def check_nobody_lives(connection: sqlite3.Connection, era: int, leases: Sequence[int]) -> None:
    """`leases`: those that live. Raises LiveSessionsError when a session was opened under one."""
    opened = [opened_at(connection, session) for session in leases]
    if live := [
        Session(session, Incarnation(position(era, at)))
        for session, at in zip(leases, opened, strict=True)
        if at is not None
    ]:
        raise LiveSessionsError(live)
