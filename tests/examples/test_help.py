"""Every example of every --help is typed as it is written, on the software GPU, or stands here with why it is not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from cotenant.cli import cli
from tests.conftest import TREE, clean_environment

if TYPE_CHECKING:
    from tests.examples.house import Typed

# Patterns of whole lines.
NOT_HERE = {
    r"cotenant demo.*": "takes a minute; tests/test_demo.py has a short one",
    r".*cotenant kubernetes (?!install --dry-run).*": "tests/kubernetes has a cluster",
    r"cotenant profile --source .*": "needs Nsight Compute",
    r"sudo cotenant daemon install --system": "writes into /etc; tests/systemd does it in a machine of its own",
    r"sbatch .*|TaskProlog=.*": "Slurm's own; tests/slurm has one",
    r".* --cluster openb_pod_list_default.csv .*": "a public log that is not part of the repository",
    r".* --policy all --seconds 60 .*": "takes too long here; tests/simulator has all policies",
}
# What does not end by itself: what it prints, or the file that it makes, when it is up. Then it is interrupted.
ENDLESS = {
    r"(ssh .*)?cotenant dashboard.*": "Ctrl-C ends it",
    r"cotenant events --follow": "joined",
    r"cotenant metrics --listen .*": "serving http",
    r"cotenant daemon (--policy|--capacity) .*": "/dev/shm/other.daemon.json",
    r"sudo cotenant daemon --replace .*": "/dev/shm/cotenant.shared/daemon.json",
    r"cotenant timeline collect -o timeline.json": "recording",
}
# What an example takes for granted.
BEFORE = {
    r"cotenant (record|profile --trace) .*": ["rm job.trace serve.trace"],
    r"cotenant profile show.*|cotenant mig plan .* serve.py train.py": [
        "cotenant profile add --name serve.py serve.trace",
        "cotenant profile add --name train.py training.trace",
    ],
    r"cotenant daemon --.*": ["rm -f /dev/shm/other*"],
    r"sudo cotenant daemon --replace .*|(sudo )?cotenant segment (show|grants|clean)( --.*)?": [
        "rm -rf /dev/shm/cotenant.shared",
        "cotenant segment create",
    ],
    r"sudo cotenant segment create.*": ["rm -rf /dev/shm/cotenant.shared"],
    r"cotenant segment (clean|show -o json) /dev/shm/team.*": [
        "rm -rf /dev/shm/team",
        "cotenant segment create /dev/shm/team",
    ],
    r"cotenant timeline stop( serve.py)?": ["cotenant timeline start serve.py -o timeline.json"],
    r"cotenant resume (\S+).*": [r"cotenant pause \1"],
}
# Where the example is not about the jobs that run.
VARIABLES = {
    r"(sudo )?cotenant segment .*|sudo cotenant daemon --replace.*": {"COTENANT_SEGMENT": ""},
    r"cotenant daemon --.*": {"COTENANT_SEGMENT": "/dev/shm/other"},
}


def commands(above: click.Command) -> Iterator[click.Command]:
    yield above
    if isinstance(above, click.Group):
        context = click.Context(above)
        for name in above.list_commands(context):
            below = above.get_command(context, name)
            assert below is not None
            yield from commands(below)


def examples() -> list[str]:
    """Each once: a group repeats some of its commands'."""
    found: dict[str, None] = {}
    for one in commands(cli):
        _, _, text = (one.epilog or "").partition("Examples:\n")
        found |= dict.fromkeys(line.strip() for line in text.splitlines() if line.strip())
    return list(found)


def said_of(table: dict[str, Any], line: str) -> Any:
    return next((value for pattern, value in table.items() if re.fullmatch(pattern, line)), None)


@pytest.fixture(scope="module")
def house(native: Path) -> Iterator[subprocess.Popen[str]]:
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("only root makes the namespaces in which the examples are typed")
    folder = Path(tempfile.mkdtemp(prefix="cotenant-house-"))
    (folder / "softgpu").mkdir(mode=0o700)
    env = clean_environment() | {
        "LD_LIBRARY_PATH": str(native / "softgpu"),
        "COTENANT_SOFTGPU": "h200,h200",
        "COTENANT_SOFTGPU_DIR": str(folder / "softgpu"),
    }
    env["PYTHONPATH"] = f"{TREE}{os.pathsep}{env['PYTHONPATH']}"
    apart = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child"]
    with subprocess.Popen(
        [*apart, sys.executable, "-m", "tests.examples.house", str(folder)],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as made:
        try:
            assert made.stdout and made.stdout.readline() == "ready\n"
            yield made
        finally:
            assert made.stdin
            made.stdin.close()
            made.wait()
            shutil.rmtree(folder)


def typed(house: subprocess.Popen[str], line: str) -> Typed:
    from tests.examples.house import Typed

    assert house.stdin and house.stdout
    pattern = next((one for one in BEFORE if re.fullmatch(one, line)), "")
    request = {
        "line": line,
        "until": said_of(ENDLESS, line) or "",
        "before": [
            re.sub(pattern, before, line) if "\\1" in before else before for before in BEFORE.get(pattern, [])
        ],
        "variables": said_of(VARIABLES, line) or {},
    }
    house.stdin.write(json.dumps(request) + "\n")
    house.stdin.flush()
    return Typed(**json.loads(house.stdout.readline()))


@pytest.mark.skipif(
    not os.environ.get("COTENANT_TEST_EXAMPLES"), reason="types all examples: make test-examples"
)
@pytest.mark.timeout(1800)
def test_every_example_does_what_it_says(house: subprocess.Popen[str]) -> None:
    wrong = {}
    for line in examples():
        if said_of(NOT_HERE, line):
            continue
        done = typed(house, line)
        # What was interrupted may say so.
        is_wrong = not said_of(ENDLESS, line) and ("Traceback" in done.err or "error:" in done.err)
        if done.status or is_wrong:
            wrong[line] = f"{done.status}: {done.out[-300:]}{done.err[-600:]}"
    assert wrong == {}


@pytest.mark.parametrize("table", [NOT_HERE, ENDLESS, BEFORE, VARIABLES])
def test_what_is_said_of_examples_is_about_some(table: dict[str, Any]) -> None:
    assert [pattern for pattern in table if not any(re.fullmatch(pattern, line) for line in examples())] == []
