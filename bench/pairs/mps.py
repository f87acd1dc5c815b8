"""NVIDIA's Multi-Process Service for the time of a measurement: a control daemon in folders of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from cotenant.errors import Problem, narrate

CONTROL = "nvidia-cuda-mps-control"
_SECONDS = 20.0
_CONTAINER_FOLDER = "/usr/local/nvidia/bin"  # where container runtimes mount the driver's programs


def missing() -> str:
    """Why MPS cannot be measured here; empty where it can."""
    return "" if _program() else f"{CONTROL} is not installed"


def _program() -> str | None:
    return shutil.which(CONTROL) or shutil.which(CONTROL, path=_CONTAINER_FOLDER)


def without_mps(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("CUDA_MPS_")}


@contextlib.contextmanager
def control_daemon(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment of its clients. The daemon is stopped whatever happens; its clients should have ended by then."""
    # A daemon that has been told to quit may still write while its folder is removed.
    with tempfile.TemporaryDirectory(prefix="cotenant-mps-", ignore_cleanup_errors=True) as name:
        pipe, log = Path(name, "pipe"), Path(name, "log")
        pipe.mkdir()
        log.mkdir()
        env = without_mps(environment) | {
            "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(log),
        }
        try:
            _start(env)
            yield env
        finally:
            _stop(pipe, env)


def _start(env: Mapping[str, str]) -> None:
    # To files: the daemon would keep pipes open, and reading them would wait for it.
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                [_program() or CONTROL, "-d"],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Problem(f"{CONTROL} -d failed: {error}") from None
        if done.returncode != 0:
            output.seek(0)
            said = output.read().decode(errors="replace").strip() or f"exit status {done.returncode}"
            raise Problem(f"{CONTROL} -d failed: {said}")


def _stop(pipe: Path, env: Mapping[str, str]) -> None:
    try:
        subprocess.run(
            [_program() or CONTROL],
            env=env,
            input="quit\n",
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((pipe / f"{CONTROL}.pid").read_text()), signal.SIGTERM)
        narrate(
            f"warning: {CONTROL} did not take 'quit' ({error}); it was sent SIGTERM if it was still there"
        )
