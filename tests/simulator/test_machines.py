"""The same seed gives the same simulation on every machine, to the last bit.

x86-64 and aarch64 differ in two ways that count: a compiler may fuse a product and a sum on one of them, and the C
library's logarithms differ in their last bit. The build forbids the first, native/sim/elementary.h replaces the second.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from cotenant.simulator import Job, Op, OpKind, Recording, Study, Workload, find_workload
from cotenant.simulator.results import edge_us
from tests.compiling import TREE, compile_program, compiled_all
from tests.simulator.small import OPPORTUNISTIC, STANDARD, small_gpu

SOURCES = (
    "tests/simulator/machines.cpp",
    *(
        f"native/sim/{name}.cpp"
        for name in ("gpu", "sharing", "gates", "turns", "looks", "clock", "rules", "alone")
    ),
    "native/admission/grace.cpp",
)

# What the installed engine gives, whatever it was built for. Who changes the model on purpose puts the new ones here.
EXPECTED = {
    "strict": "2dc470a37933886a",
    "fair": "a73e3b5b5a1d0826",
    "mps": "20198c221d5375d4",
    "orion": "c533fecd997438cf",
    "reef": "dd971dcbe67589e9",
    "chimera": "371f1d5fe3d8942f",
}


# The same of machines.cpp, which has every rule, costs that are 0 by default, 400 drawn machines, jobs and knobs, and
# 100 crowds.
DRIVEN = "b9500839032765d7"


def jobs() -> tuple[Job, ...]:
    serving = find_workload("bursts").jobs[0]
    below = (
        Op(us=300, sigma=0.9, repeat=30, sms=0.7, gbps=0.4),
        Op(OpKind.graph, us=2000, gap_us=7, sync=True),
    )
    training = Job("training", OPPORTUNISTIC, below, waits=False, trains=True, spread=0.2, floor=0.05)
    copying = Job("copying", STANDARD, (Op(OpKind.copy_to_host, bytes=1 << 20), Op(us=77)), think_ms=(0.1, 3))
    return serving, training, copying


@pytest.mark.parametrize("policy", EXPECTED)
def test_the_engine_that_was_built_gives_what_it_gives_on_every_machine(policy: str) -> None:
    workload = Workload("machines", jobs())
    outcome = Study(workload, small_gpu(), 2.0, seed=7, recording=Recording(most_spans=20_000)).run(policy)
    found = [
        (
            one.requests,
            one.operations,
            one.work_us,
            one.held_s,
            one.latency,
            one.latency.p99_us,
            one.alone.work_us,
        )
        for one in outcome.tenants
    ]
    text = repr((found, outcome.gpus, outcome.spans))
    assert hashlib.blake2b(text.encode(), digest_size=8).hexdigest() == EXPECTED[policy]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("machines"), *SOURCES)


def test_a_simulation_on_aarch64_is_that_on_this_machine(tmp_path: Path, program: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64-static")
    if not compiler or not emulator:
        pytest.skip("no aarch64-linux-gnu-g++ and qemu-aarch64-static")
    options = ("-std=c++17", "-O1", "-ffp-contract=off", f"-I{TREE / 'native'}")
    theirs = tmp_path / "theirs"
    objects = compiled_all(compiler, SOURCES, options)
    subprocess.run([compiler, "-static", *objects, "-o", theirs], check=True)
    lines = [
        subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
        for command in ([str(program)], [emulator, str(theirs)])
    ]
    assert len(set(lines[0])) == 16 + 400 + 100
    assert lines[0] == lines[1]


def test_the_engine_compiled_here_gives_what_it_gives_on_every_machine(program: Path) -> None:
    said = subprocess.run([program], capture_output=True, check=True).stdout
    assert hashlib.blake2b(said, digest_size=8).hexdigest() == DRIVEN


def test_our_elementary_functions_are_as_exact_as_the_c_librarys(program: Path) -> None:
    said = subprocess.run([program, "accuracy"], capture_output=True, check=True, text=True).stdout
    off = {name: float(units) for name, units in map(str.split, said.splitlines())}
    assert off["log"] <= 2 and off["exp"] <= 2
    assert off["turn"] <= 4  # the library's own argument is rounded, too


def test_the_edges_of_the_histograms_are_where_the_engine_has_them() -> None:
    for place in (0, 1, 100, 1599):
        assert edge_us(place) == pytest.approx(0.1 * 1.02**place, rel=1e-12)
