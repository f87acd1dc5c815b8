"""What the keys of `cotenant top` do to a real tenant on the software GPU, and to whom they do nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.errors import Problem
from cotenant.segment import Where
from cotenant.top import actions
from cotenant.top.screen import Top
from tests.segments import UUID, Written
from tests.test_top_screen import PATIENCE_SECONDS, on_screen, shown, shows, until

JOB = """
import sys
sys.path.insert(0, sys.argv[1])
from soft import Gpu
gpu = Gpu(); gpu.launch(gpu.kernel('empty')); gpu.synchronize()
print('ready', flush=True); input()
"""


@pytest.fixture
def job(softgpu_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A real tenant whose memory moves, at rest."""
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    for name, value in softgpu_env.items():  # for the commands that the screen starts
        monkeypatch.setenv(name, value)
    programs = Path(__file__).parent / "interposer" / "programs"
    command = [sys.executable, "-m", "cotenant", "run", "--require", "--class", "opportunistic"]
    with subprocess.Popen(
        [*command, "--oversubscribe", "--", sys.executable, "-c", JOB, str(programs)],
        env=softgpu_env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.fixture
def path(softgpu_env: dict[str, str]) -> Path:
    return Path(softgpu_env["COTENANT_SEGMENT"])


def the_tenant(path: Path) -> segment.Tenant:
    (only,) = segment.read(path).tenants
    return only


def test_keys_change_pause_and_resume_a_tenant(job: subprocess.Popen[str], path: Path) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("c")
        await shows(pilot, app, f"Change the class of {job.pid}")
        await pilot.press("s")
        await shows(pilot, app, f"({job.pid}): class standard")
        assert the_tenant(path).tenant_class == TenantClass.standard
        await shows(pilot, app, " std ")
        await pilot.press("p")
        await shows(pilot, app, "is paused")
        assert (the_tenant(path).where, the_tenant(path).paused) == (Where.evicted, True)
        await pilot.press("r")
        await shows(pilot, app, "runs on")
        assert (the_tenant(path).where, the_tenant(path).paused) == (Where.resident, False)

    on_screen(path, do)


def test_a_tenant_is_killed_only_after_yes(job: subprocess.Popen[str], path: Path) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        for key in ("escape", "n", "k"):
            await pilot.press("k")
            app.look()  # the table goes on behind the question
            await shows(pilot, app, f"Kill {job.pid}")
            await pilot.press(key)
            await until(pilot, lambda: len(app.screen_stack) == 1)
        assert job.poll() is None and not app.workers
        await pilot.press("k")
        await shows(pilot, app, f"Kill {job.pid}")
        await pilot.press("y")
        await shows(pilot, app, "SIGTERM sent")

    on_screen(path, do)
    assert job.wait(PATIENCE_SECONDS) == -signal.SIGTERM


def test_on_the_line_of_a_run_all_its_tenants_are_meant(job: subprocess.Popen[str], path: Path) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("t", "up")
        line = app.chosen_line()
        assert line is not None and line.is_run
        await pilot.press("k")
        await shows(pilot, app, f"Kill {job.pid}")
        await pilot.press("9")
        await shows(pilot, app, "SIGKILL sent")

    on_screen(path, do)
    assert job.wait(PATIENCE_SECONDS) == -signal.SIGKILL


def test_readonly_has_no_keys_that_steer(job: subprocess.Popen[str], path: Path) -> None:
    async def do(pilot: Pilot[None], app: Top) -> None:
        assert not any(word in shown(app)[-1] for word in ("kill", "pause", "resume", "class"))
        for key in "cpk":
            await pilot.press(key)
            await pilot.pause()
            assert len(app.screen_stack) == 1 and not app.workers
        await pilot.press("y")

    on_screen(path, do, readonly=True)
    assert job.poll() is None and not the_tenant(path).paused


def test_what_cannot_be_done_is_shown(tmp_path: Path) -> None:
    written = Written()
    written.gpu(0, UUID)
    written.tenant(0, pid=4711, name=b"[b]pinned", tenant_class=0).gpus[0].busy = 1
    path = written.to(tmp_path / "segment")

    async def do(pilot: Pilot[None], app: Top) -> None:
        await pilot.press("p")
        await shows(pilot, app, "error: [b]pinned (4711) cannot be paused")

    on_screen(path, do)


def test_a_slot_that_names_somebody_elses_process_ends_nobody(tmp_path: Path) -> None:
    """Root may run `top`: what a tenant writes into its own slot must not turn that against others."""
    written = Written()
    started = int(Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19])
    liar = written.tenant(0, pid=os.getpid(), name=b"liar")
    liar.uid, liar.started = os.getuid(), started
    path = written.to(tmp_path / "segment")
    with pytest.raises(Problem, match="is not the tenant"):
        actions.end(path, the_tenant(path), signal.SIGCONT)  # one that this process would survive


def test_a_number_that_another_process_has_now_ends_nobody(job: subprocess.Popen[str], path: Path) -> None:
    from dataclasses import replace

    later = replace(the_tenant(path), started=the_tenant(path).started + 1)
    with pytest.raises(Problem, match="is not the tenant"):
        actions.end(path, later, signal.SIGKILL)
    assert job.poll() is None


def test_a_key_asks_for_what_it_says_and_for_nothing_that_a_variable_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nenv >&2\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    for name in ("COTENANT_CTL_MEMORY", "COTENANT_RESUME_WAIT", "COTENANT_DRIVER"):
        monkeypatch.setenv(name, "1G")
    told = asyncio.run(actions.command(tmp_path / "segment", "ctl", "1", "--class", "standard"))
    assert "COTENANT_DRIVER=1G" in told and "COTENANT_CTL" not in told and "COTENANT_RESUME" not in told


def test_a_process_that_has_ended_is_named(tmp_path: Path) -> None:
    written = Written()
    written.tenant(0, pid=2**22 + 1, name=b"gone")
    path = written.to(tmp_path / "segment")
    with pytest.raises(Problem, match=r"\(gone\) has ended"):
        actions.end(path, the_tenant(path), signal.SIGTERM)
