"""Expands native/shim/hooks.list against cuda.h: the C++ list of hooks, and the report of all treatments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from declarations import Function

STREAM = re.compile(r"\bCUstream\b(?! \*)")
PUTS_WORK = re.compile(r"^cu(Launch|GraphLaunch|Memcpy|Memset)")
PUTS_WORK_OR_TAKES_MEMORY = re.compile(
    r"^cu(Launch|GraphLaunch|Memcpy|Memset"
    r"|MemAlloc|MemCreate|MemHost(Alloc|Register)$|Array(3D)?Create|MipmappedArrayCreate|MemPool(Create|Import)"
    r"|IpcOpenMemHandle|MemImport|ImportExternalMemory|ExternalMemoryGetMapped|MulticastCreate|GraphAddMemAllocNode"
    r"|(Green)?CtxCreate|DevicePrimaryCtxRetain|ModuleLoad|LibraryLoad)"
)


@dataclass(frozen=True)
class Treatment:
    handler: str | None  # None: passed to the driver
    reason: str


def list_lines(path: Path, *verbs: str) -> Iterator[tuple[int, list[str]]]:
    """Number and words of the lines that begin with one of these."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] not in ("hook", "pass", "record", "detour") or len(words) < 3:
            raise SystemExit(
                f"error: {path.name}:{number}: expected 'hook HANDLER names', 'pass \"reason\" names',"
                " 'record HANDLER names' or 'detour HANDLER names'"
            )
        if words[0] in verbs:
            yield number, words


def read_records(path: Path) -> dict[str, str]:
    """By base name: the handler that writes the function down while a trace is recorded."""
    return {name: words[1] for _, words in list_lines(path, "record") for name in words[2:]}


def read_detours(path: Path) -> dict[str, str]:
    """By base name: what the function does to streams that are away on a detour (native/tenant/detour.h)."""
    return {name: words[1] for _, words in list_lines(path, "detour") for name in words[2:]}


def read_list(path: Path) -> dict[str, Treatment]:
    """Treatment by base name."""
    treatments: dict[str, Treatment] = {}
    for number, words in list_lines(path, "hook", "pass"):
        for name in words[2:]:
            if name in treatments:
                raise SystemExit(f"error: {path.name}:{number}: {name} is listed twice")
            treatments[name] = Treatment(words[1], "") if words[0] == "hook" else Treatment(None, words[1])
    return treatments


def expand(
    treatments: Mapping[str, Treatment], functions: Mapping[str, Function]
) -> Iterator[tuple[str, Function]]:
    """(handler, function) for every declared variant of every hooked name."""
    for function in functions.values():
        treatment = treatments.get(function.base)
        if treatment and treatment.handler:
            yield treatment.handler, function


def hook_lines(treatments: Mapping[str, Treatment], functions: Mapping[str, Function]) -> str:
    lines = [
        f"HOOK({handler}, {function.name}, {'true' if function.per_thread else 'false'})"
        for handler, function in expand(treatments, functions)
    ]
    return "\n".join(lines) + "\n"


def record_lines(records: Mapping[str, str], functions: Mapping[str, Function]) -> str:
    lines = [
        f"RECORD({records[function.base]}, {function.name}, {'true' if function.per_thread else 'false'})"
        for function in functions.values()
        if function.base in records
    ]
    return "\n".join(lines) + "\n"


def detour_lines(detours: Mapping[str, str], functions: Mapping[str, Function]) -> str:
    lines = [
        f"DETOUR({detours[function.base]}, {function.name}, {'true' if function.per_thread else 'false'})"
        for function in functions.values()
        if detours.get(function.base, "Harmless") != "Harmless"
    ]
    return "\n".join(lines) + "\n"


def needs_detour(function: Function) -> bool:
    """Whether it may depend on the order of a stream."""
    takes_stream = any(STREAM.search(parameter.type) for parameter in function.parameters)
    return takes_stream or bool(PUTS_WORK.match(function.base))


def without_detour(
    treatments: Mapping[str, Treatment], detours: Mapping[str, str], functions: Mapping[str, Function]
) -> list[str]:
    """What neither lets streams come home nor is said to be harmless, or does so only where nobody is looking: a
    function that is not hooked leads straight to the driver."""
    return sorted(
        function.name
        for function in functions.values()
        if (needs_detour(function) and function.base not in detours)
        or (
            detours.get(function.base, "Harmless") != "Harmless"
            and not getattr(treatments.get(function.base), "handler", None)
        )
    )


def needs_treatment(function: Function) -> bool:
    takes_stream = any(STREAM.search(parameter.type) for parameter in function.parameters)
    return takes_stream or bool(PUTS_WORK_OR_TAKES_MEMORY.match(function.base))


def untreated(treatments: Mapping[str, Treatment], functions: Mapping[str, Function]) -> list[str]:
    return sorted(f.name for f in functions.values() if needs_treatment(f) and f.base not in treatments)


HANDLED = {
    "Kernel": "counted and gated",
    "KernelOnSeveral": "counted and gated in the stream of each device",
    "Graph": "counted and gated as a whole",
    "Copy": "counted and gated",
    "HostCopy": "counted and gated; in pieces where a higher class uses the bus",
    "Fill": "counted and gated",
    "StreamOp": "counted; no load on the GPU, so no gate",
    "HostCall": "counted; no load on the GPU, so no gate",
    "Wait": "timed: how long a thread of the job waits for the GPU",
    "RecordEvent": "watched: where it is a lane's, a wait of production for it opens the lane's gate",
    "WaitForEvent": "production that waits for a lane's event opens the lane's gate until it is past",
    "Instantiate": "a long graph gets gates between its nodes, in a clone that stands in for it",
    "UpdateExec": "the graph that it is updated from gets the same gates",
    "NodeOfExec": "translated to the node of the clone that stands in for its graph",
    "ChildOfExec": "the same; a child graph that it is updated with gets the gates of the one before",
    "DestroyExec": "the clone that stood in for its graph is destroyed too",
    "Allocate": "counted, and refused beyond the tenant's limit",
    "AllocateRows": "counted, and refused beyond the tenant's limit",
    "AllocateManaged": "counted as a whole, and refused beyond the tenant's limit",
    "AllocateInOrder": "its pool is counted, and may not grow beyond the tenant's limit",
    "Free": "uncharged",
    "FreeInOrder": "uncharged",
    "CreatePool": "watched: what the pool reserves is counted",
    "DestroyPool": "what is still allocated from the pool is counted one by one",
    "Trim": "uncharged",
    "CreatePhysical": "counted, and refused beyond the tenant's limit",
    "ReleasePhysical": "uncharged, when no mapping refers to it",
    "RetainPhysical": "watched: one more handle refers to counted memory",
    "Map": "watched: mapped memory stays counted",
    "Unmap": "uncharged, when no handle refers to it",
    "CreateArray": "counted, and refused beyond the tenant's limit",
    "ImportMemory": "counted, and refused beyond the tenant's limit",
    "DestroyHandle": "uncharged",
    "MemoryInfo": "answers with the tenant's limit and its use",
    "TotalMemory": "answers with the tenant's limit",
    "SetAccess": "watched: memory that its own device may read and write can move",
    "ExportPhysical": "pins the memory: others may refer to it",
    "PropertiesOfPhysical": "answers for the handle that now stands behind the program's",
    "BindPhysical": "pins the memory: others may refer to it",
    "BindAddress": "pins the memory: others may refer to it",
    "HandOutRange": "pins the memory: others may refer to it",
    "ShareMemory": "memory that can move is pinned and exported by a handle of ours",
    "OpenShared": "imports by a handle of ours too; the memory is counted once, where it was allocated",
    "CloseShared": "closes an import by a handle of ours too",
    "AddressRange": "answers with the allocation, also where it shares a slab",
    "PointerAttribute": "answers as for memory that does not move",
    "PointerAttributes": "answers as for memory that does not move",
    "SetPointerAttribute": "pins memory that a network card is about to access",
    "WaitForContext": "timed: how long a thread of the job waits for the GPU, which nothing of ours holds meanwhile",
    "Passed": "passed: hooked so that kernels that run on fewer SMs are waited for",
    "StaysStill": "waits until the tenant's memory is on the GPU",
    "BeginCapture": "watched: nothing is put into a stream that captures",
    "EndCapture": "watched: nothing is put into a stream that captures",
    "DestroyStream": "watched: a destroyed stream is forgotten first",
    "DestroyContext": "watched: a destroyed context's streams are forgotten first",
    "AttachContext": "watched: a detach by whoever has attached does not destroy the context",
    "DetachContext": "watched: a context that it destroys is forgotten as by `cuCtxDestroy`",
    "CreateGreenContext": "watched: memory allocated in a green context belongs to the primary context",
    "DestroyGreenContext": "watched: a green context's streams are forgotten first",
    "ResetPrimary": "watched: a reset context's streams are forgotten first",
    "ExportTable": "passed, and counted as an export table: the interposer does not see what its functions do",
    "Checkpoint": "passed, and counted as a checkpoint",
    "ProcAddress": "answers with a hook where the driver answered with a hooked function",
}


def report(treatments: Mapping[str, Treatment], functions: Mapping[str, Function], version: str) -> str:
    """A Markdown table of every function that takes a stream or memory, and every other hooked one."""
    rows: dict[str, list[str]] = {}
    for function in functions.values():
        if needs_treatment(function) or function.base in treatments:
            rows.setdefault(function.base, []).append(function.name[len(function.base) :])
    lines = [
        "# What the interposer does with each driver function",
        "",
        f"Generated from `native/shim/hooks.list` and cuda.h {version} by `make interposition-report`; do not edit.",
        "Every function of cuda.h that takes a stream or allocates memory is here; all others go straight to the",
        "driver.",
        "",
        "| function | variants | treatment |",
        "| --- | --- | --- |",
    ]
    for base in sorted(rows):
        variants = " ".join(f"`{v}`" if v else "plain" for v in sorted(rows[base]))
        treatment = treatments.get(base)
        if treatment is None:
            text = "**not treated**"
        elif treatment.handler:
            text = HANDLED[treatment.handler]
        else:
            text = f"passed: {treatment.reason}"
        lines.append(f"| `{base}` | {variants} | {text} |")
    return "\n".join(lines) + "\n"
