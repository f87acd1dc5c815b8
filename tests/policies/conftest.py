"""What the tests of published policies share: the C++ rules, asked one moment at a time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from cotenant.policies.interface import Rule
from tests.compiling import compile_program

Ask = Callable[..., str]


@pytest.fixture(scope="session")
def rules_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_program(tmp_path_factory.mktemp("rules"), "tests/policies/rules.cpp"))


def asker(program: str, question: str) -> Ask:
    def ask(rule: Rule, **fields: float) -> str:
        # production_running is the field production.running: a keyword has no dot.
        words = [f"{dotted(key)}={float(value)}" for key, value in fields.items()]
        command = [program, question, str(int(rule)), *words]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()

    return ask


def dotted(key: str) -> str:
    for part in ("production", "below", "running", "gpu"):
        if key.startswith(part + "_"):
            return part + "." + key.removeprefix(part + "_")
    return key


@pytest.fixture
def decide(rules_program: str) -> Ask:
    """decide(rule, field=value...): go, gate or wait."""
    return asker(rules_program, "decide")


@pytest.fixture
def preempt(rules_program: str) -> Ask:
    """preempt(rule, field=value...): let_run, drain, cut or kill."""
    return asker(rules_program, "preempt")
