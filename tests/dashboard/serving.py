"""A dashboard of a segment that is written by hand, asked without a socket or by a browser."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant.classes import TenantClass
from cotenant.dashboard.access import Access
from cotenant.dashboard.history import History
from cotenant.dashboard.server import Server, listen
from cotenant.policies.interface import Rule
from tests.segments import UUID, Written

SECOND = 1_000_000_000
GiB = 1 << 30
HOST = b"127.0.0.1:8765"


def scene() -> Written:
    """Two GPUs: a server with a promise beside jobs of lower classes, one of them evicted."""
    written = Written()
    written.gpu(0, UUID)
    written.gpu(1, UUID[::-1])
    written.header.knobs.stale_ms = 60_000
    written.header.knobs.rule = Rule.strict

    def job(
        pid: int, name: str, tenant_class: TenantClass, gpu: int, memory: float, program: str = "python"
    ) -> Any:
        slot = written.tenant(len(written.slots), pid, program.encode(), tenant_class)
        slot.job, slot.weight, slot.uid = name.encode(), 1000, 0
        slot.run_id[:] = bytes([pid % 251] * 16)
        slot.gpus[gpu].busy = 1
        slot.gpus[gpu].memory_bytes = int(memory * GiB)
        slot.gpus[gpu].figures.kernels = 1_204_377 + pid
        return slot

    serve = job(4101, "llm-serve", TenantClass.production, 0, 38.5)
    serve.slowdown, serve.memory_limit = 50, 48 * GiB
    notebook = job(4230, "notebook", TenantClass.standard, 0, 6.2)
    notebook.floor = 100
    tune = job(4388, "finetune.py", TenantClass.opportunistic, 0, 17)
    tune.gpus[0].gate, tune.gpus[0].ready, tune.gpus[0].figures.gates = 7, 1, 9312
    sweep = job(4391, "sweep-17", TenantClass.opportunistic, 0, 0)
    sweep.residence.where, sweep.residence.evictions, sweep.host_bytes = 3, 4, 21 * GiB
    embed = job(5007, "embeddings", TenantClass.production, 1, 11)
    embed.slowdown = 100
    one, other = (job(pid, "pretrain", TenantClass.opportunistic, 1, 24) for pid in (5120, 5121))
    other.run_id[:] = bytes(one.run_id)
    other.started = one.started + 1
    return written


def pass_a_second(written: Written, shares: Mapping[int, float]) -> None:
    """Each of these PIDs has used so much of each GPU that it works on."""
    for slot in written.slots.values():
        for on, waiting in zip(slot.gpus, slot.waiting, strict=True):
            if on.busy:
                on.used_ns += int(shares.get(slot.pid, 0) * SECOND)
                on.busy_ns += SECOND
                on.figures.bursts += 100
                if slot.tenant_class == TenantClass.production:
                    on.waits += 10
                    on.waited_ns += 10 * (180_000 if slot.pid == 4101 else 1_900_000)
                    wait(waiting, 10, 6 if slot.pid == 4101 else 9)
                elif slot.tenant_class == TenantClass.opportunistic:
                    wait(waiting, 40, 8)
                    waiting.preemptions += 40


def wait(waiting: Any, count: int, bucket: int) -> None:
    """So often, and one time of ten four times as long."""
    waiting.counts[bucket] += count - count // 10
    waiting.counts[bucket + 2] += count // 10


def an_hour(history: History, ends_at: float, jobs: Mapping[str, str]) -> None:
    """Of a day at work, made up. `jobs`: the class of each series of a job."""
    first = max(ends_at - 3600 + history.bucket_seconds, 0)
    steps = int((ends_at - first) // history.bucket_seconds)
    for step in range(steps):
        at = first + step * history.bucket_seconds
        wave = 0.5 + 0.3 * math.sin(step / 260) + 0.2 * math.cos(step / 61)
        ripple = 0.02 * math.sin(step / 5.3) + 0.015 * math.sin(step / 2.1)
        production = 0.08 + 0.5 * wave + ripple
        standard = 0.11 + 0.02 * math.sin(step / 19) if step % 620 < 410 else 0.0
        rest = 0.96 - production - standard - (0.12 if step % 900 < 70 else 0.0)
        second = 0.34 + 0.12 * math.sin(step / 150) + 0.1 * math.cos(step / 47) + ripple
        values = {
            "gpu/0/production": production,
            "gpu/0/standard": standard,
            "gpu/0/opportunistic": rest if not 1180 < step < 1240 else 0.0,
            "gpu/1/production": second,
            "gpu/1/standard": 0.0,
            "gpu/1/opportunistic": 0.94 - second if step > 500 else 0.0,
        }
        for name, gpu in jobs.items():
            values[name] = values[gpu]
        history.add(at, values)


@dataclass
class Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> bytes:
        return next((value for known, value in self.headers if known.lower() == name), b"")


Pairs = list[tuple[bytes, bytes]]


def ask(
    app: Access,
    path: str = "/",
    method: str = "GET",
    headers: Pairs | None = None,
    body: bytes = b"",
    query: bytes = b"",
) -> Answer:
    """As uvicorn would; the client goes away once it has sent the body."""
    answer = Answer(0, [], b"")
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], message["headers"]
        else:
            answer.body += message.get("body", b"")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(errors="replace"),
        "root_path": "",
        "query_string": query,
        "headers": [(b"host", HOST)] if headers is None else headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8765),
    }
    asyncio.run(app(scope, receive, send))
    return answer


def session(app: Access) -> Pairs:
    """The headers of the dashboard's own page."""
    return [
        (b"host", HOST),
        (b"origin", b"http://" + HOST),
        (b"content-type", b"application/json"),
        (b"cookie", f"{app.cookie}={app.session}".encode()),
    ]


@contextmanager
def served(path: Path, interval_seconds: float = 0.2, readonly: bool = False) -> Iterator[Server]:
    """In a thread of this process."""
    with listen("127.0.0.1", 0, False) as listener:
        server = Server(path, listener, interval_seconds, readonly)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.ask_to_end()
            thread.join(30)
            assert not thread.is_alive()
