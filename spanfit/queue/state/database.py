"""The SQLite file of a queue: opened, locked and its errors put in words [edge: files]."""

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spanfit.errors import StoreError
from spanfit.queue.state.tables import APPLICATION_ID, SCHEMA_VERSION

WAIT_S = 30.0
"""How long a second writer waits for the first."""


def connect(path: Path, wait_s: float = WAIT_S) -> sqlite3.Connection:
    """Return a connection to a queue that is there; StoreError says what is wrong with its file."""
    if not path.is_file():
        raise _absent(path)
    with explained(path):
        connection = _connect(path, "rw", wait_s)
    try:
        with explained(path):
            _check(path, connection)
            _prepare(path, connection)
    except StoreError:
        connection.close()
        raise
    return connection


def make(path: Path) -> sqlite3.Connection:
    """Return a connection to a file without tables; StoreError where there is something already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with explained(path):
        connection = _connect(path, "rwc", WAIT_S)
        try:
            check_empty(path, connection)
            _prepare(path, connection)
        except (sqlite3.Error, StoreError):
            connection.close()
            raise
    return connection


def check_empty(path: Path, connection: sqlite3.Connection) -> None:
    """Raise StoreError where a file has tables."""
    if _ntables(connection):
        raise StoreError(
            f"{path}: found a database, expected no file; name another with --state, or go on with this one"
        )


def _absent(path: Path) -> StoreError:
    return StoreError(f"{path}: no queue there; make one with: spanfit queue init CLUSTER --state {path}")


def _ntables(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _connect(path: Path, mode: str, wait_s: float) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", timeout=wait_s, isolation_level=None, uri=True)


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Choose a journal that survives a crash at any instant, and a commit that survives a power cut."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"{path}: its file system cannot share memory (journal mode {mode}); use a local disk")
    connection.execute("PRAGMA synchronous = FULL")


def _check(path: Path, connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not _ntables(connection):
        raise _absent(path)
    if application != APPLICATION_ID:
        raise StoreError(f"{path}: not a queue of spanfit; name the right file with --state")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path}: schema_version: found {version}, expected {SCHEMA_VERSION}; use the version of spanfit that made "
            "it until its jobs have ended, then make a new one with: spanfit queue init"
        )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors, but not wrong use of it, into StoreError with what to do about them."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path}: {_words(error)}") from error


def _words(error: sqlite3.Error) -> str:
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"another process has been writing for more than {WAIT_S:g} s; nothing was changed; try again"
        case sqlite3.SQLITE_FULL:
            return "the disk is full; nothing was changed; make room and try again"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return f"cannot be written ({error}); nothing was changed; check the rights of the file and its folder"
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return f"not a whole database ({error}); take a copy that is, or make a new one with: spanfit queue init"
        case sqlite3.SQLITE_IOERR:
            return f"the disk failed ({error}); nothing was changed; check the disk and its space"
    return f"{error}; nothing was changed"


@contextmanager
def acting_lock(path: Path) -> Iterator[None]:
    """Hold a lock beside a queue's file, which ends with its process; StoreError where another holds it."""
    beside = path.with_name(f"{path.name}.acting")
    try:
        file = beside.open("a")
    except OSError as error:
        raise StoreError(f"{beside}: cannot be written: {error.strerror}; check the folder's rights") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{path}: another tick is at work on this queue; nothing was done; try again") from None
        yield


@contextmanager
def writing(path: Path, connection: sqlite3.Connection) -> Iterator[None]:
    """Run a block as one transaction that no other writer enters; an error leaves everything as it was."""
    with explained(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


@contextmanager
def reading(path: Path, connection: sqlite3.Connection) -> Iterator[None]:
    """Run a block that reads one and the same state, whatever is written meanwhile."""
    with explained(path):
        connection.execute("BEGIN")
        try:
            yield
        finally:
            if connection.in_transaction:
                connection.execute("COMMIT")
