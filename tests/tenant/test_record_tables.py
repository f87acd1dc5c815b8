"""The recorder's tables and times (native/tenant/record): nothing is mixed up, lost or found twice, no time drifts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiling import compile_program, cuda_headers


def test_they_keep_what_they_are_given(tmp_path: Path) -> None:
    program = compile_program(
        tmp_path,
        "tests/tenant/record_tables.cpp",
        "native/tenant/record/op_timer.cpp",
        "native/tenant/record/trace_file.cpp",
        "native/tenant/event_pair.cpp",
        "native/wire/clock.cpp",
        headers=cuda_headers(),
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
