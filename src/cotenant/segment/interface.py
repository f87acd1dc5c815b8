"""The operations of a segment, whether it is one user's file or an administrator's folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from cotenant.segment.layout import LONGEST_POLICY_NAME, BadSegment
from cotenant.segment.snapshot import Snapshot, snapshot_of
from cotenant.segment.wire import Header


class Segment(ABC):
    """Nothing is opened before a method needs it. Each raises FileNotFoundError where there is no segment, and
    BadSegment where it is not one of ours."""

    is_shared: ClassVar[bool]  # by several users
    daemon_file_mode: ClassVar[int]

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def contents(self) -> bytes:
        """All of it, as one file holds it."""

    @abstractmethod
    def writable_header(self) -> AbstractContextManager[Header]:
        """Raises PermissionError or BadSegment where this user may not change it."""

    @abstractmethod
    def ask(self, pid: int, wanted: Mapping[str, int]) -> bool:
        """Writes requests into the tenant's slot (fields of Asked, "memory", "pause"); False: no tenant has it."""

    @abstractmethod
    def best_class_of(self, pid: int) -> int:
        """The best class that the tenant with this PID may have."""

    @abstractmethod
    def best_class_here(self) -> int:
        """The best class that a tenant which this process becomes may have."""

    @abstractmethod
    def may_have_daemon(self) -> bool:
        """Whether a daemon of this user may look after it."""

    @abstractmethod
    def daemon_file(self, ending: str) -> Path: ...

    def read(self) -> Snapshot:
        try:
            return snapshot_of(self.contents(), self.path, self.is_shared)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise BadSegment(f"{self.path} cannot be read: {error}") from error

    def choose_policy(self, name: str) -> None:
        """For writing the knobs. Raises BadSegment where it cannot be written."""
        encoded = name.encode()
        assert len(encoded) <= LONGEST_POLICY_NAME
        try:
            with self.writable_header() as header:
                header.policy = encoded
                # After the name: who sees it counted finds the whole name.
                header.choices = (header.choices + 1) % 2**32
        except PermissionError as error:
            raise BadSegment(f"{self.path} is not writable") from error
