"""Every way to a driver function leads to the right one: by exported symbol, by version and flags."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from cotenant import segment

if TYPE_CHECKING:
    from tests.conftest import RunPython

FACTS = Path(__file__).parents[2] / "native" / "facts"


def exports(path: Path) -> set[str]:
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        return {
            s.name
            for s in symbols.iter_symbols()
            if s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["type"] == "STT_FUNC"
        }


def test_every_function_of_the_real_driver_is_exported(native: Path) -> None:
    recorded = {
        n for n in (FACTS / "driver-580.exports.txt").read_text().splitlines() if not n.startswith("#")
    }
    assert len(recorded) > 600
    assert recorded <= exports(native / "shim" / "libcuda.so.1")


# What cuGetProcAddress answers in this process for each question, named by what the address is.
ANSWERS = """
import ctypes, json, os, sys
library = ctypes.CDLL('libcuda.so.1')
library.cuInit(0)
interposer = os.environ.get('LD_PRELOAD', '').endswith('shim/libcuda.so.1')
if interposer:
    library.cotenant_hook_name.restype = ctypes.c_char_p
    library.cotenant_hook_name.argtypes = [ctypes.c_void_p]
    library.cotenant_driver_function.restype = ctypes.c_void_p
names = json.load(open(sys.argv[1]))
exported = {}
for name in names['exports']:
    if interposer: address = library.cotenant_driver_function(name.encode())
    else:
        try: address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError: continue
    exported.setdefault(address, name)
answers = []
def named(address):
    hook = library.cotenant_hook_name(address) if interposer else None
    return [exported.get(address) or (hook or b'').decode() or 'unknown', bool(hook)]
for name, version, flags in names['questions']:
    for entry in ('cuGetProcAddress', 'cuGetProcAddress_v2'):
        address, status = ctypes.c_void_p(), ctypes.c_int(-1)
        arguments = [name.encode(), ctypes.byref(address), version, ctypes.c_uint64(flags)]
        if entry.endswith('_v2'): arguments.append(ctypes.byref(status))
        result = getattr(library, entry)(*arguments)
        found = named(address.value) if address.value else [None, False]
        answers.append([name, version, flags, entry, result, status.value, *found])
json.dump(answers, open(sys.argv[2], 'w'))
"""


@pytest.fixture
def answers(
    softgpu_env: dict[str, str], run_python: RunPython, native: Path, tmp_path: Path
) -> tuple[list[list[object]], list[list[object]]]:
    """The same questions with and without the interposer."""
    procs = [line.split() for line in (FACTS / "driver-580.procs.txt").read_text().splitlines()]
    names = sorted({words[0] for words in procs if words and words[0] != "#"})
    versions = (2000, 3020, 4000, 7000, 10000, 10010, 11040, 12000, 12050, 13000)
    questions = [[n, v, f] for n in [*names, "cuNoSuchFunction", ""] for v in versions for f in (0, 1, 2)]
    questions += [["cuLaunchKernel", 13000, 4], ["cuLaunchKernel", 99000, 0], ["cuMemAlloc", 1000, 0]]
    exported = [
        n for n in (FACTS / "driver-580.exports.txt").read_text().splitlines() if not n.startswith("#")
    ]
    asked = tmp_path / "questions.json"
    asked.write_text(json.dumps({"exports": exported, "questions": questions}))
    segment.ensure(Path(softgpu_env["COTENANT_SEGMENT"]))
    preloaded = softgpu_env | {
        "LD_PRELOAD": str(native / "shim" / "libcuda.so.1"),
        "COTENANT_DRIVER": str(native / "softgpu" / "libcuda.so.1"),
    }
    found = []
    for env, name in ((softgpu_env, "plain"), (preloaded, "interposed")):
        done = run_python(ANSWERS, env, asked, tmp_path / name)
        assert done.returncode == 0, done.stderr
        found.append(json.loads((tmp_path / name).read_text()))
    return found[0], found[1]


def test_look_ups_by_version_and_flags(answers: tuple[list[list[object]], list[list[object]]]) -> None:
    plain, interposed = answers
    assert len(plain) > 10_000
    # GIVEN the driver's answer, THEN ours is the same function, result and status.
    assert [a[:7] for a in interposed] == [a[:7] for a in plain]
    hooked = {str(a[6]) for a in interposed if a[7]}
    assert {
        "cuLaunchKernel",
        "cuLaunchKernel_ptsz",
        "cuMemcpyHtoD_v2",
        "cuMemcpyHtoD_v2_ptds",
        "cuGraphLaunch",
    } <= hooked
    assert {"cuGetProcAddress", "cuGetProcAddress_v2"} <= hooked
    assert "cuEventQuery" not in hooked
    # A function is ours always or never.
    assert not hooked & {str(a[6]) for a in interposed if not a[7]}


# What each name leads to that the driver exports: by dlsym, and by cuGetProcAddress for every version and stream flag.
ALL_WAYS = """
import ctypes, json, os, sys
library = ctypes.CDLL('libcuda.so.1'); library.cuInit(0)
library.cotenant_hook_name.restype = ctypes.c_char_p
library.cotenant_hook_name.argtypes = [ctypes.c_void_p]
library.cotenant_symbol_target.restype = ctypes.c_void_p
asked = json.load(open(sys.argv[1])); found = {'dlsym': [], 'cuGetProcAddress': [], 'cuGetProcAddress_v2': []}
def hooked(address): return (library.cotenant_hook_name(address) or b'').decode()
for name in asked['exports']: found['dlsym'].append([name, hooked(library.cotenant_symbol_target(name.encode()))])
for name, version, flags, function in asked['procs']:
    for entry in ('cuGetProcAddress', 'cuGetProcAddress_v2'):
        address, status = ctypes.c_void_p(), ctypes.c_int(-1)
        arguments = [name.encode(), ctypes.byref(address), version, ctypes.c_uint64(flags)]
        if entry.endswith('_v2'): arguments.append(ctypes.byref(status))
        getattr(library, entry)(*arguments)
        if address.value: found[entry].append([function, hooked(address.value)])
json.dump(found, open(sys.argv[2], 'w'))
"""


def hooked_names() -> set[str]:
    """Every exported function that native/shim/hooks.list says is hooked, read by other means than the build's."""
    exported = [n for n in (FACTS / "driver-580.exports.txt").read_text().splitlines() if n.startswith("cu")]
    lines = (FACTS.parent / "shim" / "hooks.list").read_text().splitlines()
    bases = {name for line in lines if line.startswith("hook ") for name in line.split()[2:]}
    return {name for name in exported if re.sub(r"(_v\d+)?(_pt[ds]s|_ptsz|_ptds)?$", "", name) in bases}


def test_what_is_hooked_is_hooked_on_every_way_and_nothing_else_is(
    softgpu_env: dict[str, str], run_python: RunPython, native: Path, tmp_path: Path
) -> None:
    """In all versions and stream variants."""
    procs = []
    for line in (FACTS / "driver-580.procs.txt").read_text().splitlines():
        if line.startswith("cu"):
            name, stream, since, function = line.split()
            procs.append([name, int(since), 2 if stream == "per-thread" else 1, function])
    exported = [n for n in (FACTS / "driver-580.exports.txt").read_text().splitlines() if n.startswith("cu")]
    asked, answered = tmp_path / "asked.json", tmp_path / "answered.json"
    asked.write_text(json.dumps({"exports": exported, "procs": procs}))
    segment.ensure(Path(softgpu_env["COTENANT_SEGMENT"]))
    preloaded = softgpu_env | {
        "LD_PRELOAD": str(native / "shim" / "libcuda.so.1"),
        "COTENANT_DRIVER": str(native / "softgpu" / "libcuda.so.1"),
    }
    done = run_python(ALL_WAYS, preloaded, asked, answered)
    assert done.returncode == 0, done.stderr
    wanted = hooked_names()
    assert {"cuLaunchKernel", "cuLaunchKernel_ptsz", "cuMemcpyHtoD_v2_ptds", "cuGraphExecUpdate_v2"} <= wanted
    for way, found in json.loads(answered.read_text()).items():
        assert len(found) > 600, way
        for function, hook in found:
            # Two names may stand for one function of the driver, and then for one hook.
            assert bool(hook) == (function in wanted), (way, function, hook)


def test_a_function_that_only_the_driver_knows_is_passed_on_and_counted(
    softgpu_env: dict[str, str], run_python: RunPython, native: Path, tmp_path: Path
) -> None:
    newer = tmp_path / "libcuda.so.1"
    source = tmp_path / "newer.c"
    source.write_text(
        "#include <string.h>\n"
        "int cuFromTheFuture(void) { return 42; }\n"
        "int cuGetProcAddress_v2(const char* name, void** out, int v, unsigned long f, int* status) {\n"
        "    (void)v, (void)f; *status = 0;\n"
        '    *out = strcmp(name, "cuFromTheFuture") ? 0 : (void*)cuFromTheFuture; return 0; }\n'
    )
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(newer)], check=True)
    env = softgpu_env | {"LD_PRELOAD": str(native / "shim" / "libcuda.so.1"), "COTENANT_DRIVER": str(newer)}
    done = run_python(
        "import ctypes\nl = ctypes.CDLL('libcuda.so.1'); p, s = ctypes.c_void_p(), ctypes.c_int()\n"
        "arguments = ctypes.byref(p), 15000, ctypes.c_uint64(0), ctypes.byref(s); lacking = l.cuMemGetInfo_v2\n"
        "print(l.cuGetProcAddress_v2(b'cuFromTheFuture', *arguments))\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_int)(p.value)(), lacking(0, 0))",
        env,
    )
    assert done.stdout == "0\n42 801\n", done.stderr
