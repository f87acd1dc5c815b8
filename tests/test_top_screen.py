"""The live screen of `cotenant top`, in a terminal of 80 by 24: what it shows, and what its keys do."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.segment.wire import Rule
from cotenant.top.screen import Top
from tests.segments import UUID, Written

SELDOM = 3600.0  # the tests look by themselves
SIZE = (80, 24)
PATIENCE_SECONDS = 60

Doing = Callable[[Pilot[None], Top], Awaitable[None]]


def shown(app: Top) -> list[str]:
    """The lines of the terminal."""
    strips = app.screen._compositor.render_strips()
    return ["".join(part.text for part in strip).rstrip() for strip in strips]


def tenants(app: Top) -> list[str]:
    """The table's lines, without its heading."""
    return [str(option.prompt) for option in app.table.options]


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Lets the screen go on until it holds: what is drawn follows a change when the machine has time for it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "\n".join(shown(pilot.app))  # type: ignore[arg-type]
        await pilot.pause(0.02)


async def shows(pilot: Pilot[None], app: Top, text: str) -> None:
    await until(pilot, lambda: text in " ".join(" ".join(shown(app)).split()))


def on_screen(path: Path, do: Doing, size: tuple[int, int] = SIZE, readonly: bool = False) -> None:
    async def run() -> None:
        app = Top(path, SELDOM, readonly)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "quit" in shown(app)[-1])
            await do(pilot, app)

    asyncio.run(run())


@pytest.fixture
def written(tmp_path: Path) -> Written:
    one = Written()
    one.gpu(0, UUID)
    for index, (pid, name, tenant_class, run) in enumerate(
        [
            (100, b"serve.py", TenantClass.production, 1),
            (201, b"train.py", TenantClass.opportunistic, 2),
            (202, b"loader.py", TenantClass.opportunistic, 2),
        ]
    ):
        slot = one.tenant(index, pid, name, tenant_class)
        slot.run_id[:] = bytes([run] * 16)
        slot.gpus[0].busy = 1
        slot.gpus[0].memory_bytes = pid << 20
    return one


@pytest.fixture
def path(tmp_path: Path, written: Written) -> Path:
    return written.to(tmp_path / "segment")


def test_gpus_tenants_and_keys_fit_a_small_terminal(path: Path) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        await shows(pilot, app, "202 loader.py")
        lines = shown(app)
        assert lines[0].startswith("cotenant: 3 tenants on 1 GPU, policy guard")
        assert [line.split()[0] for line in lines[2:5]] == ["production", "standard", "opportunistic"]
        assert lines[5].split()[:5] == ["GPU", "PID", "JOB", "CLASS", "STATE"]
        assert [line.split()[1] for line in lines[6:9]] == ["100", "201", "202"]
        assert "100 (serve.py)" in "".join(lines[-3:])
        assert "quit" in lines[-1] and "filter" in lines[-1] and "tree" in lines[-1]

    on_screen(path, do)


def test_a_look_shows_what_has_happened_since_the_last(path: Path, written: Written) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        written.slots[1].gpus[0].used_ns = 10**15
        written.to(path)
        app.look()
        await until(pilot, lambda: "100%" in shown(app)[1] and "100% █" in shown(app)[4])
        del written.slots[1]
        written.to(path)
        app.look()
        await until(pilot, lambda: not any("201" in line for line in shown(app)))

    on_screen(path, do)


def test_the_chosen_tenant_stays_chosen(path: Path, written: Written) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("down", "down")
        written.tenant(3, 50, b"newcomer", TenantClass.production).gpus[0].busy = 1
        written.to(path)
        app.look()
        await until(pilot, lambda: any(line.startswith("202 (loader.py)") for line in shown(app)))
        assert [line.split()[1] for line in tenants(app)] == ["50", "100", "201", "202"]

    on_screen(path, do)


def test_it_is_sorted_and_filtered_by_keys(path: Path) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("s", "s")
        await shows(pilot, app, "sorted by memory")
        assert [line.split()[1] for line in tenants(app)] == ["202", "201", "100"]
        await pilot.press("slash", *"load", "enter")
        assert [line.split()[2] for line in tenants(app)] == ["loader.py"]
        await shows(pilot, app, "'load'")
        await pilot.press("escape")
        assert len(tenants(app)) == 3

    on_screen(path, do)


def test_the_filter_is_there_while_it_is_written(path: Path) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        for end, wanted in (("enter", "load"), ("escape", "")):
            assert not app.filter_line.display and app.focused is app.table
            await pilot.press("slash")
            await shows(pilot, app, "job, program, PID, class, state or run" if end == "enter" else "load")
            await pilot.press(*"load"[len(app.wanted) :], end)
            assert (app.filter_line.value, app.wanted) == (wanted, wanted)
        assert not app.filter_line.display and app.focused is app.table

    on_screen(path, do)


def test_letters_in_the_filter_are_no_keys(path: Path) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("slash", *"qts")
        assert app.is_running and app.wanted == "qts" and not app.is_tree
        assert tenants(app) == []

    on_screen(path, do)


def test_the_tree_has_each_run_with_its_processes(path: Path) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("t")
        found = [line for line in tenants(app) if " of " in line]
        assert ["1 of serve.py" in found[0], "2 of train.py" in found[1]] == [True, True]
        assert ["403M" in found[1], len(tenants(app))] == [True, 5]
        for key, at in (("up", 0), ("down", 1)):  # the first run, and its only process
            await pilot.press(key)
            app.look()
            assert app.table.highlighted == at
        await pilot.press("t")
        assert len(tenants(app)) == 3

    on_screen(path, do)


def test_who_waits_sees_for_whom(path: Path, written: Written) -> None:
    written.slots[1].gpus[0].gate, written.slots[1].gpus[0].ready = 0, 1
    written.slots[0].heartbeat_ns, written.header.knobs.stale_ms = segment.now_ns(), 60_000
    written.header.knobs.rule = Rule.strict
    written.to(path)

    async def do(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("down")
        about = "201 (train.py) of user 1000, run 02020202 waits: production serve.py (100) is of"
        await shows(pilot, app, about)

    on_screen(path, do)


def test_a_name_with_markup_and_escapes_is_only_text(path: Path, written: Written) -> None:
    written.tenant(3, 400, b"[red]\x1b[2J[/x]", TenantClass.standard).gpus[0].busy = 1
    written.to(path)

    async def do(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("down")
        await until(pilot, lambda: sum("[red]?[2J" in line for line in shown(app)) == 2)

    on_screen(path, do, (120, 24))


def test_a_segment_that_is_replaced_does_not_end_it(path: Path, written: Written) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        path.write_bytes(b"something else")
        app.look()
        await shows(pilot, app, "is not a Cotenant segment")
        written.to(path)
        app.look()
        await until(pilot, lambda: shown(app)[0].startswith("cotenant: 3 tenants"))

    on_screen(path, do)


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60)])
def test_any_size_will_do(path: Path, size: tuple[int, int]) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        await shows(pilot, app, "serve.py")

    on_screen(path, do, size)


@pytest.mark.parametrize("end", [b"q", signal.SIGTERM, signal.SIGHUP], ids=["q", "SIGTERM", "SIGHUP"])
def test_it_takes_a_real_terminal_and_gives_it_back(
    path: Path, plain_env: dict[str, str], end: bytes | signal.Signals
) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    env = plain_env | {"COTENANT_SEGMENT": str(path), "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-m", "cotenant", "top"],
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 - pytest's own thread forks
    ) as process:
        drawn = b""
        while b"loader.py" not in drawn:
            drawn += os.read(ours, 65536)
        if isinstance(end, bytes):
            os.write(ours, end)
        else:
            process.send_signal(end)
        while b"\x1b[?1049l" not in drawn and process.poll() is None:
            drawn += read_now(ours)
        assert process.wait(60) == (0 if isinstance(end, bytes) else 128 + end)
    assert b"\x1b[?1049h" in drawn, "on the alternate screen"
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def read_now(side: int) -> bytes:
    """Nothing where nothing comes: it may have ended without a word."""
    return os.read(side, 65536) if select.select([side], [], [], 0.1)[0] else b""


def test_only_top_imports_textual() -> None:
    code = "import sys; from cotenant.commands import ctl, run, status, top; print('textual' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
