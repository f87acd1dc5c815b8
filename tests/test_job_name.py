"""What a job is called that was given no name: after its script, never after its interpreter."""

from __future__ import annotations

import shlex

import pytest

from cotenant.errors import Problem
from cotenant.launch import job_name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("./serve --port 80", "serve"),
        ("/opt/bin/vllm serve model", "vllm"),
        ("python train.py --epochs 3", "train.py"),
        ("/usr/bin/python3.12 -u -W ignore -X dev jobs/train.py -m x", "train.py"),
        ("python -m vllm.entrypoints.api_server --port 80", "vllm.entrypoints.api_server"),
        ("python -um package.main", "package.main"),
        ("python -c 'import torch'", "python-code"),
        ("python", "python-session"),
        ("torchrun --nproc_per_node 4 --standalone train.py --lr 1", "train.py"),
        ("torchrun --nproc-per-node=2 -m package.train", "package.train"),
        ("python -m torch.distributed.run --nproc_per_node 4 train.py", "train.py"),
        ("accelerate launch --num_processes 2 finetune.py", "finetune.py"),
        ("srun -n 4 python train.py", "train.py"),
        ("env A=1 nice -n 5 python train.py", "train.py"),
        ("timeout 60 ./serve", "timeout"),
        ("bash run.sh", "run.sh"),
        ("bash -c 'python train.py'", "train.py"),
        ("bash -lc 'cd /data && source env.sh; A=1 exec python train.py | tee log'", "train.py"),
        ("sh -c './serve > log 2>&1'", "serve"),
        ('bash -c "echo \'open"', "bash-code"),
        ("bash -c", "bash-session"),
        ("bash", "bash-session"),
        ("./4711", "job-4711"),
        ("./-", "job-"),
        ("'./two words'", "two_words"),
        ("./" + "ä" * 40, "ä" * 31),
    ],
)
def test_the_name_is_that_of_the_script_or_the_program(command: str, name: str) -> None:
    words = shlex.split(command) if not command.endswith('open"') else ["bash", "-c", "echo 'open"]
    assert job_name.of_command(words) == name
    assert job_name.checked(name) == name


@pytest.mark.parametrize("name", ["", "4711", "two words", "-x", "a\nb", "\x1b[31m", "x" * 64, "ä" * 32])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(Problem) as told:
        job_name.checked(name)
    assert told.value.status == 2 and told.value.hint
