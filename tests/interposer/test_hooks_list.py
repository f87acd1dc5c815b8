"""No function that puts work on a GPU or takes its memory goes untreated, whichever cuda.h the build has seen."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
LIST = TREE / "native" / "shim" / "hooks.list"


def headers() -> list[Path]:
    found = [Path("/usr/local/cuda/include")]
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found += [path.parent for path in Path(folder).glob("cu*/include/cuda.h")]
    return [path for path in found if (path / "cuda.h").exists()]


def check(include: Path, hooks: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(TREE / "native" / "codegen" / "shim.py"),
        "--compiler",
        shutil.which("g++") or "c++",
    ]
    command += ["--include", str(include), "--list", str(hooks), "--check", *more]
    command += ["--exports", str(TREE / "native" / "facts" / "driver-580.exports.txt")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(params=headers(), ids=str)
def include(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_every_function_is_hooked_or_passed_with_a_reason(include: Path) -> None:
    done = check(include, LIST)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name", ["cuLaunchKernelEx", "cuMemAllocAsync", "cuMemcpyDtoH", "cuStreamGetPriority", "cuArrayCreate"]
)
def test_a_missing_one_is_noticed(include: Path, tmp_path: Path, name: str) -> None:
    changed = tmp_path / "hooks.list"
    lines = (line.split(" ") for line in LIST.read_text().splitlines())
    changed.write_text("\n".join(" ".join(word for word in words if word != name) for words in lines))
    done = check(include, changed)
    assert done.returncode == 1
    assert name in done.stderr


@pytest.mark.parametrize("name", ["cuLaunchKernelEx", "cuMemcpyDtoH", "cuStreamQuery", "cuStreamGetPriority"])
def test_one_that_says_nothing_of_detours_is_noticed(include: Path, tmp_path: Path, name: str) -> None:
    changed = tmp_path / "hooks.list"
    lines = (line.split(" ") for line in LIST.read_text().splitlines())
    kept = (" ".join(w for w in words if words[0] != "detour" or w != name) for words in lines)
    changed.write_text("\n".join(kept))
    done = check(include, changed)
    assert done.returncode == 1
    assert "no detour" in done.stderr and name in done.stderr


def test_one_that_lets_streams_come_home_must_be_hooked(include: Path, tmp_path: Path) -> None:
    changed = tmp_path / "hooks.list"
    hooked = "hook Passed         cuStreamQuery "
    assert hooked in LIST.read_text()
    changed.write_text(LIST.read_text().replace(hooked, 'pass "asks" cuStreamQuery\nhook Passed         '))
    done = check(include, changed)
    assert done.returncode == 1
    assert "cuStreamQuery" in done.stderr


def test_the_report_shows_each_with_its_treatment(include: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    assert check(include, LIST, "--report", str(report)).returncode == 0
    text = report.read_text()
    assert "| `cuLaunchKernel` | plain `_ptsz` | counted and gated |" in text
    assert "not treated" not in text


def test_the_shipped_report_is_the_lists(tmp_path: Path) -> None:
    shipped = (TREE / "docs" / "interposition.md").read_text()
    for include in headers():
        report = tmp_path / "report.md"
        check(include, LIST, "--report", str(report))
        fresh = report.read_text()
        if fresh.splitlines()[2] == shipped.splitlines()[2]:
            assert fresh == shipped, "run 'make interposition-report'"
            return
    pytest.skip("docs/interposition.md was made from another version of cuda.h")


def generated(include: Path, folder: Path, name: str, macro: str) -> dict[str, tuple[str, str]]:
    """By function: its handler, and whether its default stream is the thread's."""
    if not folder.exists():
        assert check(include, LIST, "--output", str(folder)).returncode == 0
    lines = re.findall(rf"^{macro}\((\w+), (\w+), (\w+)\)$", (folder / name).read_text(), re.M)
    assert lines
    return {function: (handler, per_thread) for handler, function, per_thread in lines}


# By the handler of its hook, or by name.
DETOURS = {
    **dict.fromkeys(
        ("Kernel", "KernelOnSeveral", "Graph", "HostCopy", "Copy", "Fill", "StreamOp"), "InOrder"
    ),
    **dict.fromkeys(
        ("HostCall", "RecordEvent", "WaitForEvent", "BeginCapture", "EndCapture", "Passed"), "InOrder"
    ),
    **dict.fromkeys(("AllocateInOrder", "FreeInOrder", "cuGraphUpload"), "InOrder"),
    **dict.fromkeys(("cuLaunchKernel", "cuLaunchKernelEx"), "Launch"),
    **dict.fromkeys(("cuStreamSynchronize", "cuStreamQuery"), "Asks"),
    **dict.fromkeys(("DestroyStream", "ResetPrimary"), "Ends"),
}
RECORDS = {
    **{name: name for name in ("Kernel", "Graph", "Fill", "Wait", "Instantiate", "Allocate", "Free")},
    "WaitForContext": "Wait",
    **dict.fromkeys(("AllocateRows", "AllocateManaged", "AllocateInOrder", "CreatePhysical"), "Allocate"),
    **dict.fromkeys(("FreeInOrder", "ReleasePhysical"), "Free"),
    **dict.fromkeys(("DestroyContext", "ResetPrimary"), "EndContext"),
    "DetachContext": "DetachContext",
    "KernelOnSeveral": "Kernel",
}
ENDS = {"HD": "CopyToDevice", "HA": "CopyToDevice", "DH": "CopyToHost", "AH": "CopyToHost"}


def test_what_a_function_does_to_detours_and_traces_follows_from_what_it_is(
    include: Path, tmp_path: Path
) -> None:
    """By another way than the list's: with a mistake there work would overtake a stream that is away, or be missing in
    a trace, and nobody would be told."""
    made = tmp_path / "made"
    hooks = generated(include, made, "hooks.inc", "HOOK")
    detours = generated(include, made, "detour.inc", "DETOUR")
    records = generated(include, made, "record.inc", "RECORD")
    for function, (_, per_thread) in [*hooks.items(), *detours.items(), *records.items()]:
        assert per_thread == str(function.endswith(("_ptsz", "_ptds"))).lower(), function
    for function, (handler, _) in hooks.items():
        base = re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", function)
        assert detours.get(function, (None,))[0] == DETOURS.get(base, DETOURS.get(handler)), function
        recorded = records.get(function, (None,))[0]
        if handler not in ("HostCopy", "Copy"):
            assert recorded == RECORDS.get(handler), function
        elif way := re.match("cuMemcpy([HDA])to([HDA])", function):
            assert recorded == ENDS.get(way[1] + way[2], "CopyOnDevice"), function
        else:
            assert recorded and recorded.startswith("Copy"), function
