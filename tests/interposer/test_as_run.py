"""Tests start their tenants without another Python for `cotenant run`: what they give them is what it gives."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from cotenant import classes
from tests.conftest import run_child
from tests.interposer.conftest import environment_after

if TYPE_CHECKING:
    from tests.conftest import Run

TELL = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


@pytest.mark.parametrize("tenant_class", classes.NAMES)
def test_the_environment_is_that_of_a_run(
    softgpu_env: dict[str, str], cotenant: Run, tenant_class: str
) -> None:
    env = softgpu_env | {"COTENANT_MEMORY": "64M", "COTENANT_NAME": "mine", "LD_PRELOAD": "libm.so.6"}
    words = ["run", "--require", "--class", tenant_class, "--", *TELL]
    given = environment_after(words, env)
    assert given is not None
    seen, expected = (
        json.loads(done.stdout)
        for done in (run_child(TELL, given, None, 60), cotenant(*words, env=env))
        if done.returncode == 0
    )
    assert seen.pop("COTENANT_RUN_ID") != expected.pop("COTENANT_RUN_ID")
    assert seen == expected


def test_who_is_told_something_is_started_by_run_itself(softgpu_env: dict[str, str]) -> None:
    words = ["run", "--require", "--class", "standard", "--", "true"]
    for env in ({"COTENANT_MEMORY": "much"}, {"COTENANT_SHARE": "spatial"}, {"COTENANT_DRIVER": "/nowhere"}):
        assert environment_after(words, softgpu_env | env) is None
    assert environment_after(["run", "nobody-has-this"], softgpu_env) is None
