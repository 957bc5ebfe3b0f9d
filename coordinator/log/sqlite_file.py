"""The file of the embedded log: its schema, the lock beside it, and that it stays the one it was.

One process at a time holds the file. It must not change under whoever holds it: if somebody moved
another file to its place, wrote into it, or removed it, what is committed there is nobody's. SQLite
writes commits into a file beside it (WAL), and only a checkpoint changes the file itself; so
checkpoints are made here, and any other change is somebody else's. What others commit goes into the file
beside it as well, and SQLite tells of it: somebody has removed the lock, and started another agent.

Left out: what is in the tables (`sqlite`). All of it belongs to one thread.
"""

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
from pathlib import Path
from typing import NamedTuple

from coordinator.log.metadata_log import LogError, LogRefusedError, LogReplacedError
from protocol.fault_codes import FaultCode

logger = logging.getLogger(__name__)

APPLICATION_ID = 0x4672617A
"""Marks the file as ours ("Fraz")."""

FORMAT_VERSION = 2

CHECKPOINT_WAL_BYTES = 4 * 1024 * 1024
"""A write-ahead log of this size is brought into the file: SQLite's own default, 1000 pages. It is
then written anew from its beginning: where a file system need not find room for what is written, an
fsync takes two thirds of the time and of the work."""
COMMIT_BYTES = 3 * 4096
"""Of a commit, besides entries: the pages of a table, of its index, and of the newest revision."""
BUSY_MS_MAX = 5_000
"""For another process to let go of what is needed to open the file: Python's own default."""
WAL_KEPT_SHARE = 4
"""What became longer than so many times that is cut off."""


SCHEMA = """
CREATE TABLE identity (id INTEGER PRIMARY KEY CHECK (id = 1), value BLOB NOT NULL);
CREATE TABLE granted (session INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE entry (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    n INTEGER NOT NULL,
    payload BLOB NOT NULL,
    UNIQUE (session, n)
);
"""

SCHEMA_CUT = """
CREATE TABLE newest (
    session INTEGER PRIMARY KEY,
    n INTEGER NOT NULL,
    opened INTEGER NOT NULL
);
CREATE TABLE bound (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    snapshots BLOB NOT NULL,
    older INTEGER NOT NULL,
    cut INTEGER NOT NULL,
    forgotten INTEGER NOT NULL
);
INSERT INTO bound VALUES (1, x'', 0, 0, 0);
"""
"""Since format 2. `newest`: of sessions with entries that were cut, the newest number among those,
and the revision of entry 0. `bound`: what was published, the revisions of the older snapshot and
of the cut, and the newest session that is not kept in `newest` any more."""


SCHEMA_VOID = """
CREATE TABLE IF NOT EXISTS void (
    revision INTEGER PRIMARY KEY,
    notice INTEGER NOT NULL,
    value BLOB NOT NULL
);
"""
"""Besides format 2: whoever does not know it reads the entry at revision `notice`, which tells the same,
and stops there."""


_FAULTS = {
    sqlite3.SQLITE_FULL: FaultCode.DISK_FULL,
    sqlite3.SQLITE_CANTOPEN: FaultCode.DATA_FOLDER_DENIED,
    sqlite3.SQLITE_PERM: FaultCode.DATA_FOLDER_DENIED,
    sqlite3.SQLITE_READONLY: FaultCode.DATA_FOLDER_DENIED,
}


def fault_of_sqlite(error: sqlite3.Error) -> FaultCode | None:
    """What SQLite's own code says; the upper bits of one only say more, but for a file that has no room to be
    mapped (the index of the WAL, at the start): that counts as an I/O error."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return FaultCode.DISK_FULL
    return _FAULTS.get(code & 0xFF)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite has found that what is in the file makes no sense."""
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in damage


class _FileState(NamedTuple):
    """What tells that a file is still the one it was, and holds what it held."""

    device: int
    inode: int
    bytes: int
    modified_ns: int


class SqliteFile:
    """The file, its lock and its connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = path.with_name(path.name + "-wal")
        self._lock: int | None = None
        self._connection: sqlite3.Connection | None = None
        self._file: _FileState | None = None
        """The file as we left it; None before it was opened."""
        self._others = 0
        """What SQLite counts of commits by others, as it was when the connection was opened."""
        self._wal_inode: int | None = None
        """Of the file beside it that the connection writes into; None before it was seen."""
        self._written_bytes = 0
        """Into the write-ahead log since it was brought into the file, about."""
        self._kept_bytes = 0
        """How long it was then; what is written anew does not make it longer."""

    def connection(self) -> sqlite3.Connection:
        """Opened at the first use. Raises LogRefusedError and LogReplacedError."""
        if self._connection is None:
            self.check()
            try:
                self._connection = self._open()
                self._file = self._state()
                self._others = _others(self._connection)
            except sqlite3.Error as error:
                self.close()
                fault = fault_of_sqlite(error)
                raise LogRefusedError(
                    f"the log {self._path} cannot be opened: its disk is full ({error})"
                    if fault is FaultCode.DISK_FULL
                    else f"{self._path} cannot be used as a log (is it one, whole and readable?): {error}",
                    fault=fault,
                ) from error
            except OSError as error:
                self.close()
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                raise LogRefusedError(
                    f"the log {self._path} cannot be opened: {error.strerror or error}",
                    fault=FaultCode.DISK_FULL if full else FaultCode.DATA_FOLDER_DENIED,
                ) from error
            except LogRefusedError:
                self.close()
                raise
        return self._connection

    def check(self) -> None:
        """Find the file as we left it. Raises LogReplacedError."""
        if self._file is not None and self._state() != self._file:
            raise LogReplacedError(
                f"the log {self._path} was replaced, changed or removed while it was in use"
            )

    def check_alone(self, connection: sqlite3.Connection) -> None:
        """Within a transaction that has read: find that nobody else has committed anything since the
        connection was opened. Raises LogReplacedError, and nothing of the transaction is in."""
        if _others(connection) == self._others:
            return
        connection.execute("ROLLBACK")
        raise LogReplacedError(
            f"another process has written into the log {self._path} while it was in use; an embedded log"
            f" serves one agent, and {self._path.name}.lock beside it must stay",
            fault=FaultCode.DATA_FOLDER_IN_USE,
        )

    def checkpoint(self, connection: sqlite3.Connection, payload_bytes: int) -> None:
        """Something was committed, with so many bytes of entries: bring what was committed into the file,
        when it has become much. Raises sqlite3.Error when the file is damaged, and LogReplacedError."""
        wal_bytes = self._wal_bytes()
        self._written_bytes += COMMIT_BYTES + payload_bytes
        most = CHECKPOINT_WAL_BYTES
        if self._written_bytes < most and wal_bytes < self._kept_bytes + most:
            return
        self.check()
        keeps = wal_bytes <= WAL_KEPT_SHARE * most
        self._kept_bytes = wal_bytes if keeps else 0
        try:
            # Whoever reads the file meanwhile (a backup, a shell) may go on for long: what is needed for that is
            # brought in later, and the log does not wait.
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute(f"PRAGMA wal_checkpoint({'RESTART' if keeps else 'TRUNCATE'})")
        except sqlite3.Error as error:
            if is_damage(error):
                raise
            # The disk is full, say. What was committed is in the file beside it, which goes on.
            logger.warning("the log %s is not brought into its file yet: %s", self._path, error)
            self._kept_bytes = wal_bytes
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS_MAX}")
        self._written_bytes = 0
        self._file = self._state()

    def _wal_bytes(self) -> int:
        """The length of the file beside it. Raises LogReplacedError when that is not the one it was."""
        try:
            found = self._wal.stat()
        except FileNotFoundError:
            found = None
        inode = None if found is None else found.st_ino
        if self._wal_inode not in (None, inode):
            raise LogReplacedError(
                f"{self._wal}, which is a part of the log, was replaced or removed while it was in use"
            )
        self._wal_inode = inode
        return 0 if found is None else found.st_size

    def forget_connection(self) -> None:
        """The next use opens the file anew; it stays ours meanwhile. Raises LogReplacedError."""
        if self._connection is not None:
            # Closing writes into the file, which must not be somebody else's.
            self.check()
            self._connection.close()
            self._connection = None
            self._written_bytes = self._kept_bytes = 0
            self._wal_inode = None
            self._file = self._state()

    def _state(self) -> _FileState | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return _FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def close(self) -> None:
        with contextlib.suppress(LogReplacedError):
            self.forget_connection()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _open(self) -> sqlite3.Connection:
        if self._lock is None:
            self._take_lock()
        is_new = not self._path.exists()
        # A new one has what users log in with, so it is its owner's, as objects in a folder are; SQLite gives
        # those beside it the same rights.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if is_new:
            # The folder may be new, too, made by us or just before by whoever started us.
            _fsync_folder(self._path.parent)
            _fsync_folder(self._path.parent.resolve().parent)
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(connection)
        except (sqlite3.Error, LogError):
            connection.close()
            raise
        return connection

    def _take_lock(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        lock_path = self._path.with_name(self._path.name + ".lock")
        self._lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LogRefusedError(
                f"the log {self._path} is in use by another process; an embedded log serves one"
                " agent",
                fault=FaultCode.DATA_FOLDER_IN_USE,
            ) from None

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application_id != APPLICATION_ID:
            raise LogRefusedError(f"{self._path} is a database of something else")
        if version > FORMAT_VERSION:
            raise LogRefusedError(
                f"the log {self._path} has format {version}, written by a newer version; this one"
                f" reads up to {FORMAT_VERSION}",
                fault=FaultCode.VERSION_MISMATCH,
            )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._bring_in(connection)
        if version < FORMAT_VERSION:
            connection.executescript(
                f"BEGIN; {'' if tables else SCHEMA} {SCHEMA_CUT}"
                f" PRAGMA application_id = {APPLICATION_ID};"
                f" PRAGMA user_version = {FORMAT_VERSION}; COMMIT;"
            )
        connection.execute(SCHEMA_VOID)

    def _bring_in(self, connection: sqlite3.Connection) -> None:
        """Bring what is in the write-ahead log into the file, before anything of it is told. Raises sqlite3.Error.

        A process that ended has left it. Its last fsync may have failed, or never come: then there are commits in it
        that can be read, and that no later fsync makes durable, since systems forget what they could not write; a
        power cut would end the log there, and what was committed behind them would go, too.
        """
        connection.execute("PRAGMA busy_timeout = 0")
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS_MAX}")
        if busy:
            # Somebody reads the file (a backup, a shell), and may go on for long.
            logger.warning(
                "the log %s is being read, and not brought into its file yet", self._path
            )


def _fsync_folder(folder: Path) -> None:
    """What was made in it is there after a power cut. Not where we may not read it."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _others(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection has committed."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)
