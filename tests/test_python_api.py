"""`import cotenant`: what the commands tell and do, as functions with typed results."""

from __future__ import annotations

import importlib
import json
import os
import time
import types
import typing
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cotenant as api
from cotenant import segment
from cotenant.api import field_name, running
from cotenant.classes import TenantClass
from cotenant.policies.interface import Rule
from tests.compiling import TREE
from tests.segments import UUID, UUID_TEXT, Written

if TYPE_CHECKING:
    from tests.conftest import Run, RunPython


@pytest.fixture
def scene(plain_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A production job at work, and an opportunistic one that waits for it."""
    written = Written()
    written.gpu(0, UUID)
    written.header.knobs = segment.Knobs(rule=Rule.strict, stale_ms=60_000)
    for pid, job, tenant_class, gate in (
        (10, b"serve", TenantClass.production, segment.GATE_OPEN),
        (20, b"train", TenantClass.opportunistic, 0),
    ):
        slot = written.tenant(pid, pid, job, tenant_class)
        slot.job, slot.weight, slot.started, slot.heartbeat_ns = job, 1500, pid, time.monotonic_ns()
        here = slot.gpus[0]
        here.ready = 1
        here.gate, here.busy, here.figures.bursts, here.figures.kernels, here.used_ns = (
            gate,
            1,
            1,
            pid,
            2_500_000_000,
        )
    monkeypatch.setenv("COTENANT_SEGMENT", plain_env["COTENANT_SEGMENT"])
    return written.to(Path(plain_env["COTENANT_SEGMENT"]))


def as_json(result: Any) -> Any:
    """Of a result: the names as JSON has them."""
    if isinstance(result, dict):
        return {name.removesuffix("_"): as_json(value) for name, value in result.items()}
    if isinstance(result, list | tuple):
        return [as_json(one) for one in result]
    return str(result) if isinstance(result, Path) else result


def test_status_is_what_the_command_prints(scene: Path, cotenant: Run, plain_env: dict[str, str]) -> None:
    printed = json.loads(cotenant("status", "-o", "json", env=plain_env).stdout)
    told = as_json(asdict(api.status()))
    assert {name: told[name] for name in ("segment", "gpus", "tenants")} == {
        name: printed[name] for name in ("segment", "gpus", "tenants")
    }
    serve, train = api.status().tenants
    assert (serve.job, serve.class_, serve.weight) == ("serve", "production", 1.5)
    assert (train.gpus[0].gated, train.gpus[0].kernels, train.gpus[0].uuid) == (True, 20, UUID_TEXT)


def test_status_of_a_job_has_its_tenants_only(scene: Path) -> None:
    assert [one.pid for one in api.status("train").tenants] == [20]
    assert [one.pid for one in api.status(10, segment=scene).tenants] == [10]
    assert api.status("train").gpus == api.status().gpus


def test_explain_names_the_wait_and_says_what_the_command_says(
    scene: Path, cotenant: Run, plain_env: dict[str, str]
) -> None:
    (told,) = api.explain("train")
    assert told.tenant == api.status("train").tenants[0]
    assert list(told.waits) == [0] and "serve" in told.waits[0][0]
    assert f"{told}\n" == cotenant("explain", "train", env=plain_env).stdout
    (serves,) = api.explain("serve")
    assert serves.waits == {}


def conforms(value: object, hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(conforms(value, one) for one in typing.get_args(hint))
    origin = typing.get_origin(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(conforms(one, typing.get_args(hint)[0]) for one in value)
    if hint is float:
        return type(value) in (float, int)
    return type(value) is hint if origin is None else isinstance(value, origin)


def test_every_field_has_the_type_that_it_is_declared_with(scene: Path) -> None:
    seen = api.status()
    shown: list[Any] = [*seen.gpus, *seen.tenants, *(here for tenant in seen.tenants for here in tenant.gpus)]
    wrong = [
        f"{type(one).__name__}.{field.name} = {getattr(one, field.name)!r}"
        for one in shown
        for field in fields(one)
        if not conforms(getattr(one, field.name), typing.get_type_hints(type(one))[field.name])
    ]
    assert wrong == []
    assert field_name("class") == "class_" and field_name("job") == "job"


@pytest.mark.parametrize(
    "act", [api.status, api.explain, api.pause, api.resume], ids=lambda act: act.__name__
)
def test_a_job_that_is_not_there_is_a_problem_with_its_hint(scene: Path, act: Callable[[str], Any]) -> None:
    with pytest.raises(api.Problem, match="no job has the name, id or PID 'trein'") as told:
        act("trein")
    assert told.value.__notes__ == ["hint: did you mean 'train'?"]


def test_memory_that_cannot_move_is_not_paused(scene: Path) -> None:
    with pytest.raises(api.Problem, match="cannot be paused"):
        api.pause("train")


def test_without_a_segment_there_are_no_tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment.paths, "SHARED", tmp_path / "none")
    monkeypatch.setattr(segment.paths, "own_default", lambda: tmp_path / "none yet")
    monkeypatch.delenv("COTENANT_SEGMENT", raising=False)
    assert (api.status().gpus, api.status().tenants) == ((), ())
    with pytest.raises(api.Problem, match="there is no segment"):
        api.status(segment=tmp_path / "mistyped")


def test_a_plain_import_loads_nothing_else(run_python: RunPython) -> None:
    done = run_python(
        "import sys; before = set(sys.modules); import cotenant; cotenant.__version__; "
        "print(sorted(set(sys.modules) - before))"
    )
    assert done.stdout == "['__future__', 'cotenant']\n", done.stderr


def test_every_public_name_is_there_listed_and_on_the_page() -> None:
    page = (TREE / "docs" / "python.md").read_text()
    for name in api.__all__:
        found = getattr(importlib.import_module("cotenant"), name)
        assert found.__doc__ and name in dir(api)
        assert f"`{name}" in page or f"cotenant.{name}" in page, f"docs/python.md does not have {name}"
    assert sorted(api.__all__) == api.__all__
    with pytest.raises(AttributeError, match="no attribute 'tenent'"):
        getattr(api, "tenent")  # noqa: B009


def test_a_process_does_not_pause_its_own_job(monkeypatch: pytest.MonkeyPatch, scene: Path) -> None:
    own = [types.SimpleNamespace(pid=1), types.SimpleNamespace(pid=os.getpid())]
    monkeypatch.setattr(running, "of_job", lambda job, seen: own)
    with pytest.raises(api.Problem, match="cannot pause its own job"):
        running.pause("me", segment=scene)
