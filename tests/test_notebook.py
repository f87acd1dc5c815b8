"""`%load_ext cotenant` and `%%cotenant`: cells of a notebook as tenants of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cotenant.api.notebook import in_one_line
from cotenant.errors import Problem

if TYPE_CHECKING:
    from tests.conftest import Run, RunPython

pytest.importorskip("IPython")

SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
def cell(text):
    result = shell.run_cell(text)
    return result.error_in_exec or result.error_before_exec
assert cell('%load_ext cotenant') is None
"""


def test_a_cell_runs_in_its_lane_and_the_next_does_not(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    source = SHELL + (
        "import ctypes\n"
        "shell.user_ns['lane'] = ctypes.CDLL(None).cotenant_lane_enter\n"
        "assert cell('%%cotenant opportunistic --name notebook --weight 2\\ninside = lane(1)\\n40 + 2') is None\n"
        "assert cell('outside = lane(0)') is None\n"
        "assert (shell.user_ns['inside'], shell.user_ns['outside']) == (1, 0)\n"
        "assert shell.user_ns['_'] == 42\n"
        "cell('%%cotenant opportunistic --name notebook --weight 2\\nraise KeyError(1)')\n"
        "assert cell('after = lane(0)') is None and shell.user_ns['after'] == 0\n"
        "print('reached')\n"
    )
    done = cotenant("run", "--require", "--", "python", "-c", source, env=softgpu_env)
    assert done.returncode == 0 and done.stdout.endswith("reached\n"), done.stdout + done.stderr
    assert "KeyError" in done.stdout


@pytest.mark.parametrize("as_kernel", [False, True], ids=["ipython", "kernel"])
def test_outside_cotenant_run_one_line_names_the_remedy(run_python: RunPython, as_kernel: bool) -> None:
    source = (
        ("import sys, types; sys.modules['ipykernel'] = types.ModuleType('ipykernel')\n" if as_kernel else "")
        + SHELL
        + "print('loaded')\n"
        + "error = cell('%%cotenant opportunistic\\nran = True')\n"
        + "print(type(error).__name__, 'ran' in shell.user_ns)\n"
        + "assert cell('%%cotenant opportunistic --optional\\nran = True') is None and shell.user_ns['ran']\n"
    )
    done = run_python(source)
    assert done.returncode == 0, done.stderr
    at_load, loaded, *_, last = done.stdout.splitlines()
    remedy = "cotenant run -- jupyter lab" if as_kernel else "cotenant run -- python"
    assert "was not started under `cotenant run`; start" in at_load and remedy in at_load
    assert (loaded, last) == ("loaded", "UsageError False")
    assert "Traceback" not in done.stdout + done.stderr and remedy in done.stderr


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("oportunistic", "did you mean 'opportunistic'?"),
        ("", "the following arguments are required: CLASS; usage: %%cotenant"),
        ("standard --wait 5", "unrecognized arguments: --wait 5; usage: %%cotenant"),
    ],
)
def test_what_is_wrong_with_the_line_is_said_in_one_line(run_python: RunPython, line: str, told: str) -> None:
    done = run_python(SHELL + f"cell('%%cotenant {line}\\nran = True'); assert 'ran' not in shell.user_ns")
    assert done.returncode == 0 and told in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr


def test_a_problem_without_a_remedy_is_its_message() -> None:
    assert in_one_line(Problem("it is so", "do this")) == "it is so; do this"
    assert in_one_line(Problem("it is so")) == "it is so"
