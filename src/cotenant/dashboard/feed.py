"""Looks at the segment, again and again, for the history and for everybody who watches. A watcher that is slow gets
fewer frames, not older ones: only the newest is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from cotenant.dashboard import jobs_shown
from cotenant.dashboard.history import History
from cotenant.errors import Problem
from cotenant.top import looking
from cotenant.top.model import Model, Picture

MOST_WATCHERS = 64


class Feed:
    def __init__(self, path: Path, interval_seconds: float) -> None:
        self.path = path
        self.interval_seconds = interval_seconds
        self.model = Model()
        self.history = History()
        self.picture: Picture | None = None
        self.problem: Problem | None = None  # of the latest look: somebody has replaced the segment
        self.watchers = 0
        self.ended = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.looked = asyncio.Event()  # a new one for each look
        self.wanted = asyncio.Event()  # a look now, not only when it is due

    async def run(self) -> None:
        self.loop = asyncio.get_running_loop()
        while not self.ended:
            await self.look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wanted.wait(), self.interval_seconds)
            self.wanted.clear()

    async def look(self) -> None:
        try:
            self.picture = await asyncio.to_thread(looking.look, self.model, self.path)
            self.problem = None
            if self.picture.elapsed_ns:  # shares are of the time between two looks
                self.history.add(self.model.looks.at_ns / 1e9, jobs_shown.series(self.picture))
        except Problem as problem:
            self.problem = problem
        except OSError as error:
            self.problem = Problem(f"cannot read {self.path}: {error.strerror}")
        self.tell()

    def tell(self) -> None:
        looked, self.looked = self.looked, asyncio.Event()
        looked.set()

    def end_soon(self) -> None:
        """From any thread, and from a signal's handler."""
        if self.loop:
            self.loop.call_soon_threadsafe(self.end)

    def end(self) -> None:
        """Everybody who watches has seen the last frame."""
        self.ended = True
        self.wanted.set()
        self.tell()

    async def first_look(self) -> None:
        """Who asks before there was a look waits for it."""
        if self.picture is None and not self.problem:
            await self.looked.wait()

    def frame(self) -> dict[str, Any]:
        if self.problem or self.picture is None:
            problem = self.problem or Problem("nobody has looked yet")
            return {"problem": {"message": problem.message, "hint": problem.hint}}
        return jobs_shown.frame(self.picture) | {"newest": self.history.newest_as_json()}

    async def frames(self, made: Callable[[], dict[str, Any]]) -> AsyncIterator[str]:
        """As server-sent events have them."""
        self.watchers += 1
        try:
            yield "retry: 2000\n\n"
            while not self.ended:
                looked = self.looked
                frame = await asyncio.to_thread(lambda: json.dumps(made(), separators=(",", ":")))
                yield f"data: {frame}\n\n"
                await looked.wait()
        finally:
            self.watchers -= 1
