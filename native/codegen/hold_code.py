"""What native/tenant/hold.ptx is on each GPU, as native/tenant/hold_code.inc: by hand, after a change of the former.

python native/codegen/hold_code.py PTXAS     PTXAS: of CUDA 12.8, from the package nvidia-cuda-nvcc-cu12
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "tenant" / "hold.ptx"
RESULT = SOURCE.with_name("hold_code.inc")
# Code for one of them runs on the later ones of its generation, too.
GPUS = (70, 75, 80, 90, 100, 120)
WORDS_A_LINE = 5


def code_for(ptxas: str, gpu: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "code"
        subprocess.run([ptxas, f"-arch=sm_{gpu}", str(SOURCE), "-o", str(code)], check=True)
        return code.read_bytes()


def array(gpu: int, code: bytes) -> str:
    words = [int.from_bytes(code[at : at + 8], "little") for at in range(0, len(code), 8)]
    lines = [words[at : at + WORDS_A_LINE] for at in range(0, len(words), WORDS_A_LINE)]
    text = ",\n".join("    " + ", ".join(f"{word:#x}" for word in line) for line in lines)
    return f"constexpr uint64_t kSm{gpu}[] = {{\n{text}}};\n"


def main(ptxas: str) -> None:
    head = (
        "// Made by native/codegen/hold_code.py from native/tenant/hold.ptx, whose SHA-256 is\n"
        f"// {hashlib.sha256(SOURCE.read_bytes()).hexdigest()}\n"
    )
    arrays = "".join(array(gpu, code_for(ptxas, gpu)) for gpu in GPUS)
    codes = ", ".join(f"{{{gpu // 10}, {gpu % 10}, kSm{gpu}}}" for gpu in GPUS)
    RESULT.write_text(f"{head}{arrays}constexpr Code kCode[] = {{{codes}}};\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
