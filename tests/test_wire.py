"""Python's picture of the segment is the compiler's."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest

from cotenant import classes, segment
from cotenant.segment import layout as python
from tests.segments import check_of

STRUCTURES = {
    "Header": python.Header,
    "Header::Gpu": python.Gpu,
    "Knobs": python.Knobs,
    "Right": python.Right,
    "Slot": python.Slot,
    "Slot::Asked": python.Asked,
    "Slot::Memory": python.Memory,
    "Slot::Pace": python.Pace,
    "Slot::Residence": python.Residence,
    "Header::Crowding": python.Crowding,
    "OnGpu": python.OnGpu,
    "Figures": python.Figures,
}
# Fields that only fill a place here have no counterpart to compare.
FILLERS = {"unused", "unused_a", "unused_b"}


@pytest.fixture
def layout(native: Path) -> dict[str, tuple[int, int]]:
    library = ctypes.CDLL(str(native / "libcotenant_wire.so"))
    library.cotenant_wire_layout.restype = ctypes.c_char_p
    lines = library.cotenant_wire_layout().decode().splitlines()
    return {name: (int(offset), int(size)) for name, offset, size in (line.split() for line in lines)}


def test_every_field_has_the_compilers_offset_and_size(layout: dict[str, tuple[int, int]]) -> None:
    ours = {}
    for name, structure in STRUCTURES.items():
        for field in structure._fields_:
            if field[0] not in FILLERS:
                place = getattr(structure, field[0])
                ours[f"{name}.{field[0]}"] = (place.offset, place.size)
    assert ours == {name: place for name, place in layout.items() if "." in name}


def test_every_structure_has_the_compilers_size(layout: dict[str, tuple[int, int]]) -> None:
    for name, (_, size) in layout.items():
        if "." not in name:
            assert ctypes.sizeof(STRUCTURES[name]) == size, name


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
        segment.PAGE,
        segment.PAGE,
        segment.SLOTS,
    )


def test_the_classes_are_numbered_as_in_the_header() -> None:
    header = Path(__file__).parent.parent / "native" / "wire" / "wire.h"
    line = next(line for line in header.read_text().splitlines() if line.startswith("enum Class"))
    for tenant_class in classes.TenantClass:
        assert f"{tenant_class.name} = {tenant_class.value}" in line


def test_a_check_word_is_the_compilers(native: Path) -> None:
    header = segment.Header()
    header.gpus[3].capacity = 5 << 30
    segment.seal(header)
    assert header.gpus[3].capacity_check == check_of(5 << 30)
    assert header.crowding.check == check_of(0, 0, 0)
