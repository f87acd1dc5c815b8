"""Files that commands write: a new file takes the place of a regular file, and of nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import output_files
from cotenant.errors import Problem
from cotenant.traces.writer import write
from tests.traces.made_up import requests

if TYPE_CHECKING:
    from tests.conftest import Run


def test_neither_a_pipe_nor_a_link_can_be_an_output(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    output_files.check(there)
    output_files.check(tmp_path / "new")
    pipe, link, dangling = tmp_path / "pipe", tmp_path / "link", tmp_path / "dangling"
    os.mkfifo(pipe)
    link.symlink_to(there)
    dangling.symlink_to(tmp_path / "nowhere")
    for path, problem, hint in (
        (pipe, "is no regular file", "name a file"),
        (link, "is a link", f"name the file that it leads to: {there}"),
        (dangling, "is a link", f"name the file that it leads to: {tmp_path / 'nowhere'}"),
    ):
        with pytest.raises(Problem, match=f"{path} {problem}") as told:
            output_files.check(path)
        assert told.value.hint == hint
    # Through a folder that is a link, as before.
    (tmp_path / "folder").mkdir()
    (tmp_path / "elsewhere").symlink_to(tmp_path / "folder")
    output_files.check(tmp_path / "elsewhere" / "new")


def test_no_command_replaces_a_pipe(cotenant: Run, softgpu_env: dict[str, str], tmp_path: Path) -> None:
    trace, pipe = tmp_path / "job.trace", tmp_path / "pipe"
    write(requests(count=3, kernels=6), trace)
    os.mkfifo(pipe)
    for arguments in (
        ("record", "--force", "-o", pipe, "--", "true"),
        ("run", "--timeline", pipe, "--", "true"),
        ("simulate", "serve-and-train", "--seconds", "0.1", "--trace", pipe),
        ("timeline", "start", "-o", pipe),
        ("timeline", "collect", "-o", pipe),
        ("trace", "export", "--force", trace, "-o", pipe),
        ("trace", "cut", "--force", trace, "-o", pipe),
    ):
        done = cotenant(*arguments, env=softgpu_env)
        assert stat.S_ISFIFO(pipe.lstat().st_mode), arguments
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr.splitlines()[:2] == [
            f"error: {pipe} is no regular file",
            "hint: name a file",
        ], arguments
