"""What keeps cut kernels off the GPU in the gaps of a burst (native/tenant/hold.h), with a driver of the test's."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tests.compiling import compile_program, cuda_headers

SOURCE = Path(__file__).resolve().parents[2] / "native" / "tenant" / "hold.ptx"


@pytest.fixture(scope="module")
def hold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(
        tmp_path_factory.mktemp("hold"),
        "tests/tenant/hold.cpp",
        "native/tenant/hold.cpp",
        "native/tenant/wait_for_all.cpp",
        "native/wire/clock.cpp",
        headers=cuda_headers(),
    )


@pytest.mark.parametrize("case", ["queue", "gaps", "due", "waits", "refusals", "gpus", "contexts", "places"])
def test_the_queue_that_holds_the_gpu(hold: Path, case: str) -> None:
    done = subprocess.run([str(hold), case], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_code_is_that_of_the_source() -> None:
    words = SOURCE.with_name("hold_code.inc").read_text()
    assert hashlib.sha256(SOURCE.read_bytes()).hexdigest() in words, "run native/codegen/hold_code.py"
    arrays = re.findall(r"kSm(\d+)\[\] = \{([^}]*)\}", words)
    assert len(arrays) == 6
    for _, listed in arrays:
        code = b"".join(int(word, 16).to_bytes(8, "little") for word in listed.split(","))
        elf = ELFFile(io.BytesIO(code))
        assert elf["e_machine"] == "EM_CUDA"
        symbols = elf.get_section_by_name(".symtab")
        assert isinstance(symbols, SymbolTableSection) and symbols.get_symbol_by_name("cotenant_hold")
