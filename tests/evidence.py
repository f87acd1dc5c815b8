"""What the processes of a failed test were doing: printed with the failure, as they are gone afterwards."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from cotenant import segment
from tests.conftest import processes_naming


def text_of(file: Path) -> str:
    return file.read_text(errors="replace").strip()


def of_thread(folder: Path) -> str:
    """Its name, its state, the system call that it is in with the arguments, and for how long it could have run and had
    no processor, in its life (proc(5))."""
    name, state, call, ran = (text_of(folder / file) for file in ("comm", "stat", "syscall", "schedstat"))
    waited_ms = int(ran.split()[1]) // 1_000_000
    return f"    {name} {state.rpartition(')')[2].split()[0]} {call}, without a processor for {waited_ms} ms"


def of_tenant(one: segment.Tenant, now_ns: int) -> Iterator[str]:
    yield (
        f"{one.pid} class {one.tenant_class}: {one.where.name}, beat {(now_ns - one.heartbeat_ns) / 1e6:.0f} ms ago, "
        f"paused {one.paused}, asked {one.asked}, wants {one.wanted_bytes}, refused {one.refusal}, "
        f"host {one.host_bytes}"
    )
    for use in one.uses:
        yield (
            f"  GPU {use.gpu}: memory {use.memory_bytes}, movable {use.movable_bytes}, busy {use.busy}, "
            f"gated {use.gated}, holds turn {use.holds_turn}, {use.figures}"
        )
    yield from of_threads(one.pid)


def of_threads(pid: int) -> Iterator[str]:
    for thread in sorted(Path(f"/proc/{pid}/task").iterdir()):
        yield of_thread(thread)


def of_process(pid: int) -> Iterator[str]:
    yield f"{pid} {text_of(Path(f'/proc/{pid}/comm'))}"
    yield from of_threads(pid)


def of_segment(path: Path) -> Iterator[str]:
    now_ns = segment.now_ns()
    for one in segment.read(path).tenants:
        yield from of_tenant(one, now_ns)


def of_files(folder: Path) -> Iterator[str]:
    """What is written there; sockets and the like have their names only."""
    for file in sorted(folder.rglob("*")):
        yield f"{file.relative_to(folder)}: {text_of(file) if file.is_file() else '-'}"


def until_gone(lines: Iterator[str]) -> Iterator[str]:
    """Processes and files may go while they are looked at."""
    try:
        yield from lines
    except (OSError, segment.BadSegment) as error:
        yield str(error)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when != "call" or not report.failed:
        return report
    fixtures: dict[str, Any] = getattr(item, "funcargs", {})
    if env := fixtures.get("softgpu_env"):
        tenants = until_gone(of_segment(Path(env["COTENANT_SEGMENT"])))
        report.sections.append(("tenants", "\n".join(tenants)))
        # softgpud, and its clients that are no tenants. A real GPU has no folder.
        folders = [Path(env["COTENANT_SOFTGPU_DIR"])] if "COTENANT_SOFTGPU_DIR" in env else []
        processes = (until_gone(of_process(pid)) for pid in processes_naming(folders))
        report.sections.append(("processes of the software GPU", "\n".join(chain.from_iterable(processes))))
    if mps := fixtures.get("mps"):
        report.sections.append(("MPS", "\n".join(until_gone(of_files(mps.folder)))))
    return report
