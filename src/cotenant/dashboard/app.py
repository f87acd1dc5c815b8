"""What the dashboard serves, and what its buttons do: the same as the keys of `cotenant top`.

    GET  /                        the page; /static/... what it is made of
    GET  /api/state               one frame
    GET  /api/stream              a frame for each look, as server-sent events
    GET  /api/history             the last hour
    POST /api/jobs/KEY/pause      also resume; class, with {"class": NAME};
                                  kill, with {"signal": "SIGTERM" or "SIGKILL", "processes": [[PID, started], ...]}

What a job is asked is asked of all its processes. A signal goes only to those that the user was shown and confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from cotenant import classes
from cotenant.dashboard import jobs_shown
from cotenant.dashboard.feed import MOST_WATCHERS, Feed
from cotenant.errors import Problem
from cotenant.tenants import jobs
from cotenant.tenants.jobs import Job
from cotenant.top import actions

TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_BODY_BYTES = 64 << 10
MOST_AT_ONCE = 4  # actions: each is a process of its own
SIGNALS = {one.name: one for one in (signal.SIGTERM, signal.SIGKILL)}


def static_files() -> dict[str, bytes]:
    folder = resources.files("cotenant.dashboard") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


class Dashboard:
    def __init__(self, feed: Feed, readonly: bool) -> None:
        self.feed = feed
        self.readonly = readonly
        self.files = static_files()
        self.turn = asyncio.Semaphore(MOST_AT_ONCE)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self.page),
                Route("/static/{name}", self.static),
                Route("/api/state", self.state),
                Route("/api/stream", self.stream),
                Route("/api/history", self.history),
                Route("/api/jobs/{key}/{action}", self.act, methods=["POST"]),
            ],
            lifespan=self.lifespan,
        )

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        looking = asyncio.create_task(self.feed.run())
        await self.feed.first_look()
        yield
        self.feed.end()
        await looking

    async def page(self, request: Request) -> Response:
        return Response(self.files["index.html"], media_type=TYPES[".html"])

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        media_type = TYPES.get(name[name.rfind(".") :])
        if name not in self.files or media_type is None:
            raise HTTPException(404)
        return Response(self.files[name], media_type=media_type)

    async def state(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(self.frame))

    def frame(self) -> dict[str, Any]:
        return self.feed.frame() | {"readonly": self.readonly}

    async def history(self, request: Request) -> Response:
        return JSONResponse(self.feed.history.as_json())

    async def stream(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self.feed.watchers >= MOST_WATCHERS:
            return PlainTextResponse("too many pages watch already\n", 503)
        return StreamingResponse(self.feed.frames(self.frame), media_type="text/event-stream")

    async def act(self, request: Request) -> Response:
        if self.readonly:
            return refused(403, "this dashboard was started with --readonly")
        try:
            asked = await body_of(request)
            action = request.path_params["action"]
            async with self.turn:
                said = await self.do(request.path_params["key"], action, asked)
        except Problem as problem:
            return refused(409, problem.message, problem.hint)
        self.feed.wanted.set()
        return JSONResponse({"said": said})

    async def do(self, key: str, action: str, asked: dict[str, Any]) -> list[str]:
        if action not in ("pause", "resume", "class", "kill"):
            raise HTTPException(404)
        job = self.job(key)
        if job is None:
            raise Problem("the job has ended")
        path, pid = self.feed.path, str(job.pids[0])
        if action == "class":
            if asked.get("class") not in classes.NAMES:
                raise HTTPException(400)
            return [await actions.command(path, "ctl", pid, "--class", asked["class"])]
        if action == "kill":
            return self.kill(job, asked)
        return [await actions.command(path, action, pid)]

    def kill(self, job: Job, asked: dict[str, Any]) -> list[str]:
        number, confirmed = asked.get("signal"), asked.get("processes")
        if not isinstance(number, str) or number not in SIGNALS or not isinstance(confirmed, list):
            raise HTTPException(400)
        meant = [one for one in job.tenants if [one.pid, one.started] in confirmed]
        if not meant:
            raise Problem("the processes that were to be killed have ended")
        return [actions.end(self.feed.path, one, SIGNALS[number]) for one in meant]

    def job(self, key: str) -> Job | None:
        seen = self.feed.picture.seen.tenants if self.feed.picture else ()
        return next((job for job in jobs.of(seen) if jobs_shown.key_of(job) == key), None)


def refused(status: int, message: str, hint: str = "") -> Response:
    return JSONResponse({"error": message, "hint": hint}, status)


async def body_of(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY_BYTES:
            raise HTTPException(413)
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400) from None
    if not isinstance(asked, dict):
        raise HTTPException(400)
    return asked
