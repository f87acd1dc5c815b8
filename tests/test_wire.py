"""Python's picture of the segment is the compiler's: generated, and compiled into the library as static_asserts."""

from __future__ import annotations

import ctypes
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cotenant import segment
from cotenant.segment import wire
from tests.segments import check_of

TREE = Path(__file__).parents[1]


def test_the_whole_segment_has_the_compilers_size(native: Path) -> None:
    library = ctypes.CDLL(str(native / "libcotenant_wire.so"))
    library.cotenant_segment_bytes.restype = ctypes.c_size_t
    assert library.cotenant_segment_bytes() == segment.SEGMENT_BYTES


def test_a_new_segment_says_who_it_is(native: Path, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    segment.ensure(path)
    magic, version, header_bytes, slot_bytes, slots = struct.unpack_from("<8sIIII", path.read_bytes())
    assert magic == segment.MAGIC
    assert (version, header_bytes, slot_bytes, slots) == (
        segment.VERSION,
        segment.PLACE,
        segment.PLACE,
        segment.SLOTS,
    )


def test_a_new_segment_has_the_default_knobs(native: Path, tmp_path: Path) -> None:
    segment.ensure(tmp_path / "segment")
    knobs = segment.Header.from_buffer_copy((tmp_path / "segment").read_bytes()).knobs
    defaults = {name: value for name, value in vars(wire).items() if name.startswith("DEFAULT_")}
    assert {
        f"DEFAULT_{name.upper()}": getattr(knobs, name) for name, *_ in wire.Knobs._fields_[1:]
    } == defaults
    assert knobs.rule == wire.Rule.strict


def test_a_check_word_is_the_compilers(native: Path) -> None:
    header = segment.Header()
    header.gpus[3].capacity = 5 << 30
    segment.seal(header)
    assert header.gpus[3].capacity_check == check_of(5 << 30)
    assert header.memory_knobs.check == check_of(0, 0, 0)


PLAIN = """
#include <atomic>
namespace wire {
constexpr char kMagic[2] = {'h', 'i'};
constexpr int kMany = 3;
enum Kind : uint32_t { one = 1, two = 2 };
using Flag = std::atomic<uint32_t>;
struct Line {
    alignas(64) Flag first;  // a comment; with { brackets }
    alignas(32) uint8_t bytes[kMany];
};
inline int code(int x) { return x; }
struct Header {
    char text[5];
    struct Inner {
        uint64_t big, bigger;
        Flag knob;
    } inner[2];
};
struct Slot {
    Flag before;
    Line lines[2];
    uint64_t table[kMany][2];
};
struct Segment {
    Header& header();
};
}
"""


def generated(header: Path, folder: Path) -> tuple[dict[str, Any], str]:
    """What Python would import, and what the compiler would check."""
    python, checks = folder / "wire.py", folder / "wire_layout.inc"
    command = [sys.executable, str(TREE / "native" / "codegen" / "wire_layout.py")]
    command += [str(header), "--python", str(python), "--checks", str(checks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    names: dict[str, Any] = {}
    exec(python.read_text(), names)
    return names, checks.read_text()


def test_structures_lie_as_the_compiler_lays_them(tmp_path: Path) -> None:
    header = tmp_path / "wire.h"
    header.write_text(PLAIN)
    made, checks = generated(header, tmp_path)
    slot, inner = made["Slot"], made["Inner"]
    assert (made["MAGIC"], made["MANY"], made["Kind"].two) == (b"hi", 3, 2)
    assert (made["Header"].inner.offset, ctypes.sizeof(inner), inner.knob.offset) == (8, 24, 16)
    assert (made["Line"].bytes.offset, ctypes.sizeof(made["Line"])) == (32, 64)
    assert (slot.lines.offset, slot.table.offset, ctypes.sizeof(slot)) == (64, 192, 256)
    source = tmp_path / "checked.cpp"
    source.write_text(f"#include <cstddef>\n#include <cstdint>\n{PLAIN}\n{checks}\nint main() {{}}\n")
    if compiler := shutil.which("g++"):
        compile_it = [compiler, "-std=c++17", "-fsyntax-only", str(source)]
        subprocess.run(compile_it, check=True)
        source.write_text(source.read_text().replace("char text[5]", "char text[9]"))
        assert subprocess.run(compile_it, capture_output=True, check=False).returncode != 0


def test_a_field_that_is_added_to_the_header_is_there_in_python(tmp_path: Path) -> None:
    header = tmp_path / "wire.h"
    text = (TREE / "native" / "wire" / "wire.h").read_text()
    left = int(re.findall(r"uint8_t unused\[(\d+)\];", text)[-1])
    added = f"uint8_t unused[{left - left % 8 - 8}];\n    Count added;"
    header.write_text(text.replace(f"uint8_t unused[{left}];", added))
    made, _ = generated(header, tmp_path)
    assert made["Slot"].added.offset == segment.Slot.gpus.offset - 8
    assert ctypes.sizeof(made["Slot"]) == ctypes.sizeof(segment.Slot)


def test_a_row_is_unpacked_in_the_order_of_its_fields(tmp_path: Path) -> None:
    header = tmp_path / "wire.h"
    row = "struct Row { uint64_t first, second; uint32_t third, fourth; };\nstruct Segment"
    header.write_text(PLAIN.replace("struct Segment", row))
    made, checks = generated(header, tmp_path)
    assert (made["Row"]._fields, made["ROW_FORMAT"]) == (("first", "second", "third", "fourth"), "=QQII")
    assert "static_assert(offsetof(wire::Row, fourth) == 20);" in checks
    header.write_text(header.read_text().replace(", fourth", ""))
    with pytest.raises(ValueError, match="Row has gaps"):
        generated(header, tmp_path)


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ("float part;", "Slot has a field of type float"),
        ("Flag* pointer;", "Slot has more than plain fields"),
        ("Flag of[kNothing];", "'kNothing' is no number"),
    ],
)
def test_what_python_cannot_have_is_refused(tmp_path: Path, field: str, why: str) -> None:
    header = tmp_path / "wire.h"
    header.write_text(PLAIN.replace("Flag before;", field))
    with pytest.raises(ValueError, match=re.escape(why)):
        generated(header, tmp_path)
