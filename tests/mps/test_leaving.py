"""A client of MPS that is interrupted or terminated lets its kernel end first: on the software GPU, as at worst on a
real one, a client that dies in the middle of a kernel takes all clients of its server with it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.mps.conftest import Start
from tests.waiting import wait_for

LONG_US = 700_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_ended_in_a_kernel_dies_of_the_signal_and_the_other_goes_on(
    start: Start, number: int
) -> None:
    other = start("--share", "spatial", "--class", "production").begin()
    ended = start("--share", "spatial", "--class", "production").begin()
    began = time.monotonic()
    assert ended.say(f"start {LONG_US}") == "0"
    assert ended.kill(number)[0] == -number
    assert time.monotonic() - began > LONG_US / 1e6, "the kernel came to its end"
    assert int(other.say("timed 1000")) >= 1000


def test_a_lane_that_joins_just_then_ends_no_kernel_of_another(start: Start) -> None:
    other = start("--share", "spatial", "--class", "production").begin()
    ended = start("--share", "spatial", "--class", "production").begin()
    began = time.monotonic()
    assert ended.say(f"start {LONG_US}") == "0"
    assert ended.process.stdin
    ended.process.stdin.write("joining\n")
    assert ended.end()[0] == -signal.SIGTERM
    assert time.monotonic() - began > LONG_US / 1e6, "the kernel came to its end"
    assert int(other.say("timed 1000")) >= 1000


def test_a_job_that_is_killed_in_a_kernel_takes_the_others_with_it(start: Start) -> None:
    """The danger itself, without which the tests beside it would show nothing."""
    other = start("--share", "spatial", "--class", "production").begin()
    killed = start("--share", "spatial", "--class", "production").begin()
    assert killed.say("start 60000000") == "0"
    assert int(other.say("timed 10000")) > 0, "the kernel has begun by now"
    killed.kill(signal.SIGKILL)
    wait_for(lambda: int(other.say("timed 1000")) == -806)


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    job = start("--share", "spatial").begin()
    assert job.say("start 60000000") == "0"
    job.process.send_signal(signal.SIGTERM)
    assert job.kill(signal.SIGINT)[0] in (-signal.SIGINT, -signal.SIGTERM)


def test_a_kernel_without_end_is_not_waited_for(start: Start) -> None:
    job = start("--share", "spatial").begin()
    assert job.say("start 600000000") == "0"
    assert job.kill(signal.SIGTERM)[0] == -signal.SIGTERM


@pytest.mark.parametrize(("share", "is_minded"), [("spatial", True), ("turns", False)])
def test_only_a_client_of_mps_has_its_signals_minded(start: Start, share: str, is_minded: bool) -> None:
    job = start("--share", share).begin()
    status = Path(f"/proc/{job.pid}/status").read_text()
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
    assert bool(caught >> (signal.SIGTERM - 1) & 1) is is_minded


@pytest.mark.parametrize("env", [{}, {"JOB_HANDLER": "1"}])
def test_a_program_keeps_its_own_handler(start: Start, env: dict[str, str]) -> None:
    """Whether it had one before its first work on the GPU or only gets one then."""
    job = start("--share", "spatial", env=env).begin()
    if not env:
        assert job.say("handler") == "ok"
    job.process.send_signal(signal.SIGTERM)
    assert job.hear() == "caught"
    assert int(job.say("timed 100")) >= 100


def test_a_forked_child_dies_of_a_signal_as_any_process(start: Start) -> None:
    job = start("--share", "spatial").begin()
    assert job.say("child") == "0", "it has our handler still"
    assert int(job.say("timed 100")) >= 100
