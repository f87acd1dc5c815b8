"""The file in which a segment's events are kept, SEGMENT.daemon.events: an event a line, as JSON. The daemon appends to
it; at MOST_BYTES it becomes SEGMENT.daemon.events.old, and a new one begins. It outlives the daemon.

As the daemon's other files it lies where others may write: no link is followed, and a stranger's file is not read.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from cotenant.daemon import files
from cotenant.errors import Problem
from cotenant.events.kinds import Event
from cotenant.segment import open as open_segment

MOST_BYTES = 1 << 20
LONGEST_LINE = 1 << 16
LOOK_SECONDS = 0.2


def file_for(path: Path) -> Path:
    return files.beside(path, ".events")


def old(file: Path) -> Path:
    return file.with_name(f"{file.name}.old")


def append(path: Path, events: Iterable[Event]) -> None:
    """Raises OSError, and Problem where somebody has planted the file."""
    text = "".join(json.dumps(event.record()) + "\n" for event in events).encode()
    if not text:
        return
    file = file_for(path)
    descriptor = files.open_trusted(path, file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.fchmod(descriptor, open_segment(path).daemon_file_mode)  # whatever the umask
        before = os.fstat(descriptor).st_size
        written = os.write(descriptor, text)
        if written < len(text):  # a full disk; half an event would spoil the next one's line
            os.ftruncate(descriptor, before + text.rfind(b"\n", 0, written) + 1)
        is_full = os.fstat(descriptor).st_size >= MOST_BYTES
    finally:
        os.close(descriptor)
    if is_full:
        file.replace(old(file))


def read(path: Path) -> list[Event]:
    """The eldest first. What is no event is passed over. Raises Problem where somebody has planted the file."""
    return [
        event for file in (old(file_for(path)), file_for(path)) for event in events_in(contents(path, file))
    ]


def contents(path: Path, file: Path) -> bytes:
    try:
        with os.fdopen(files.open_trusted(path, file, os.O_RDONLY), "rb") as opened:
            return opened.read(2 * MOST_BYTES)
    except OSError:
        return b""


def events_in(text: bytes) -> Iterator[Event]:
    for line in text.splitlines():
        try:
            yield Event.of(json.loads(line[:LONGEST_LINE]))
        except (ValueError, TypeError, KeyError, RecursionError):
            continue


def follow(path: Path, from_start: bool = False) -> Iterator[Event]:
    """Those that come from now on, without end; `from_start`: those that are kept first. Raises Problem as `read`."""
    file, opened, at = file_for(path), -1, 0
    is_first = not from_start
    if from_start:
        yield from events_in(contents(path, old(file)))
    try:
        while True:
            if opened < 0:
                opened = opened_to_follow(path, file)
                at = os.fstat(opened).st_size if opened >= 0 and is_first else 0
                is_first = False
            if opened >= 0:
                if os.fstat(opened).st_size < at:  # somebody has emptied it
                    at = 0
                while more := os.pread(opened, MOST_BYTES, at):
                    # Half a line is read again when there is more of it; that of a full disk goes away.
                    length = more.rfind(b"\n") + 1 or (len(more) if len(more) == MOST_BYTES else 0)
                    if not length:
                        break
                    yield from events_in(more[:length])
                    at += length
                if is_another(file, opened):
                    os.close(opened)
                    opened = -1
                    continue
            time.sleep(LOOK_SECONDS)
    finally:
        if opened >= 0:
            os.close(opened)


def opened_to_follow(path: Path, file: Path) -> int:
    """-1: there is none yet."""
    try:
        return files.open_trusted(path, file, os.O_RDONLY)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise Problem(f"cannot read {file}: {error.strerror}", "run this as the segment's owner") from None


def is_another(file: Path, opened: int) -> bool:
    """Whether the name stands for another file now; where there is none, a new one will come."""
    try:
        return not os.path.samestat(os.fstat(opened), os.lstat(file))
    except OSError:
        return True
