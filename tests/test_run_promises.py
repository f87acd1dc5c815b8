"""`cotenant run --weight --slowdown --floor --policy`: what reaches the command, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment

if TYPE_CHECKING:
    from tests.conftest import Run

PROMISES = ("COTENANT_WEIGHT", "COTENANT_SLOWDOWN", "COTENANT_FLOOR")


def promises_in(output: str) -> dict[str, str]:
    found = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    return {name.removeprefix("COTENANT_").lower(): found[name] for name in PROMISES if name in found}


@pytest.mark.parametrize(
    ("arguments", "reach"),
    [
        ([], {}),
        (["--weight", "2"], {"weight": "2"}),
        (["--weight", ".5"], {"weight": "0.5"}),
        (["--class", "production", "--slowdown", "0.05"], {"slowdown": "5%"}),
        (["--class", "production", "--slowdown", "2.5%"], {"slowdown": "2.5%"}),
        (["--class", "opportunistic", "--floor", "5 %"], {"floor": "5%"}),
    ],
)
def test_what_was_given_reaches_the_command(
    cotenant: Run, softgpu_env: dict[str, str], arguments: list[str], reach: dict[str, str]
) -> None:
    done = cotenant("run", *arguments, "--", "env", env=softgpu_env)
    assert (done.returncode, promises_in(done.stdout)) == (0, reach)


@pytest.mark.parametrize(
    ("arguments", "variable", "reaches"),
    [
        # The class decides, in the tenant itself.
        (["--class", "opportunistic"], None, None),
        ([], None, None),
        (["--class", "opportunistic", "--no-oversubscribe"], None, "0"),
        (["--oversubscribe"], None, "1"),
        (["--class", "opportunistic"], "0", "0"),
        ([], "1", "1"),
        (["--no-oversubscribe"], "1", "0"),
    ],
)
def test_whether_memory_moves_is_said_where_it_was(
    cotenant: Run,
    softgpu_env: dict[str, str],
    arguments: list[str],
    variable: str | None,
    reaches: str | None,
) -> None:
    given = {} if variable is None else {"COTENANT_OVERSUBSCRIBE": variable}
    done = cotenant("run", *arguments, "--", "env", env=softgpu_env | given)
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert (done.returncode, found.get("COTENANT_OVERSUBSCRIBE")) == (0, reaches)


def test_an_inner_run_takes_over_what_fits_its_class(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    inner = (sys.executable, "-m", "cotenant", "run")
    outer = ("run", "--class", "production", "--slowdown", "5%", "--weight", "3", "--")
    done = cotenant(*outer, *inner, "env", env=softgpu_env)
    assert promises_in(done.stdout) == {"weight": "3", "slowdown": "5%"}
    done = cotenant(*outer, *inner, "--class", "opportunistic", "env", env=softgpu_env)
    assert (done.returncode, promises_in(done.stdout)) == (0, {"weight": "3"})


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--slowdown", "5%"], "add --class production"),
        (["--class", "production", "--floor", "5%"], "leave it out"),
        (["--class", "production", "--slowdown", "0"], "from 0.1% to 1000%"),
        (["--class", "production", "--slowdown", "5"], "did you mean 5%?"),
        (["--floor", "5"], "did you mean 5%?"),
        (["--class", "production", "--slowdown", "-5%"], "from 0.1% to 1000%"),
        (["--class", "production", "--slowdown", "nan"], "from 0.1% to 1000%"),
        (["--floor", "95%"], "from 0% to 90%"),
        (["--weight", "1e3"], "0.1 to 100"),
        (["--weight", "9" * 400], "0.1 to 100"),
        (["--policy", "gurd"], "did you mean 'guard'?"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_done(
    cotenant: Run, softgpu_env: dict[str, str], arguments: list[str], hint: str
) -> None:
    done = cotenant("run", *arguments, "--", "true", env=softgpu_env)
    assert done.returncode == 2 and hint in done.stderr
    assert not Path(softgpu_env["COTENANT_SEGMENT"]).exists()


def test_a_variable_of_the_users_own_must_fit_too(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    done = cotenant("run", "--", "true", env=softgpu_env | {"COTENANT_SLOWDOWN": "5%"})
    assert done.returncode == 2
    bare = softgpu_env | {"COTENANT_CLASS": "production", "COTENANT_SLOWDOWN": "5"}
    done = cotenant("run", "--", "true", env=bare)
    assert done.returncode == 2 and "did you mean 5%?" in done.stderr


def test_a_policy_is_for_the_segment(cotenant: Run, softgpu_env: dict[str, str]) -> None:
    assert cotenant("run", "--policy", "fair", "--", "true", env=softgpu_env).returncode == 0
    path = Path(softgpu_env["COTENANT_SEGMENT"])
    assert segment.read(path).policy == "fair"
    assert cotenant("run", "--", "true", env=softgpu_env).returncode == 0
    assert segment.read(path).policy == "fair"
