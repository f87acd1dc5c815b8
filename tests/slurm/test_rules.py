"""Which class and limits a Slurm job gets, and what the task prolog prints."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.classes import TenantClass
from cotenant.cli import main
from cotenant.errors import Problem
from cotenant.launch import python_path
from cotenant.launch.environment import NotShared
from cotenant.slurm.prolog import asked_of_slurm, changes, tenant_environment
from cotenant.slurm.rules import Rule, Rules, SlurmJob, read_rules, rule_for
from tests.compiling import TREE

RULES = """
[qos.gold]
class = "production"
slowdown = "5%"
[qos.scavenger]
class = "opportunistic"
memory = "40%"
[partition.serving]
class = "production"
"""


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    path = tmp_path / "slurm.toml"
    path.write_text(RULES)
    return read_rules(path)


def test_the_qos_goes_before_the_partition_and_that_before_the_default(rules: Rules) -> None:
    gold = Rule(TenantClass.production, slowdown="5%")
    assert rule_for(SlurmJob("1", qos="gold", partition="serving"), rules) == gold
    assert rule_for(SlurmJob("1", qos="normal", partition="serving"), rules) == Rule(TenantClass.production)
    assert rule_for(SlurmJob("1", qos="normal", partition="other"), rules) == Rule(TenantClass.standard)
    for more in ({}, {"shards": 1}, {"comment": "cotenant class=opportunistic"}):
        assert rule_for(SlurmJob("1", partition="other", **more), Rules(default=None, shards=2)) is None


def test_a_comment_may_ask_for_less(rules: Rules) -> None:
    job = SlurmJob("1", comment="cotenant class=opportunistic memory=20G weight=2")
    assert rule_for(job, rules) == Rule(TenantClass.opportunistic, memory="20G", weight="2")
    job = SlurmJob("1", qos="scavenger", comment="cotenant: memory=10%")
    assert rule_for(job, rules) == Rule(TenantClass.opportunistic, memory="10%")
    limited = replace(rules, default=Rule(memory="40G", weight="3"))
    for comment, rest in (
        ("memory=40G", Rule(memory="40G", weight="3")),
        ("weight=2", Rule(memory="40G", weight="2")),
    ):
        assert (
            rule_for(SlurmJob("1", comment=f"cotenant {comment}"), limited) == rest
        )  # all of it, and the rest stays
    lower = SlurmJob("1", qos="gold", comment="cotenant class=standard")
    assert rule_for(lower, rules) == Rule(TenantClass.standard)
    same = SlurmJob("1", qos="gold", comment="cotenant class=production")
    assert rule_for(same, rules) == rules.qos["gold"]
    assert rule_for(SlurmJob("1", comment="nightly run of class=production"), rules) == Rule()
    assert rule_for(SlurmJob("1", comment="cotenant class=opportunistic"), Rules(comments=False)) == Rule()


@pytest.mark.parametrize(
    ("qos", "comment", "said"),
    [
        ("", "cotenant class=production", "the class production is not yours to take"),
        ("scavenger", "cotenant memory=50%", "50% of memory is more than your limit"),
        ("scavenger", "cotenant memory=1G", "1G of memory is more than your limit"),
        ("", "cotenant floor=10%", "a floor is not yours to take"),
        ("gold", "cotenant class=production slowdown=1%", "a promise is not yours to take"),
        ("", "cotenant clas=standard", "unknown key 'clas'"),
        ("", "cotenant class=lazy", "unknown class 'lazy'"),
        ("", "cotenant opportunistic", "'opportunistic' says nothing"),
    ],
)
def test_a_comment_may_not_ask_for_more_or_for_nonsense(
    rules: Rules, qos: str, comment: str, said: str
) -> None:
    with pytest.raises(Problem) as problem:
        rule_for(SlurmJob("1", qos=qos, comment=comment), rules)
    assert said in problem.value.message and problem.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[qos.a]\nclass = 'best'", "unknown class 'best'"),
        ("[qos.a]\nslowdown = '5%'", "slowdown is for production"),
        ("[qos.a]\nclass = 'production'\nfloor = '5%'", "floor is for standard and opportunistic"),
        ("[qos]\na = 3", "'qos.a' is a table, not 3"),
        ("[quality.a]\nclass = 'standard'", "unknown key 'quality'"),
        ("require = 'yes'", "'require' is true or false"),
        ("[default]\nmemory = 'much'", "no memory limit: 'much'"),
        ("[qos.a]\nfloor = true", "'floor' is True"),
        ("[qos.a]\nmemory = ['1G']", "'memory' is ['1G']"),
        ("shards = true", "'shards' is a whole number, not True"),
        ("shards = -1", "shards is -1"),
        ("default = ", "is no TOML"),
        pytest.param("default = " + "[" * 5000, "is no TOML", id="deep"),
        pytest.param("shards = " + "9" * 5000, "is no TOML", id="digits"),
    ],
)
def test_wrong_rules_are_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "slurm.toml"
    path.write_text(text)
    with pytest.raises(Problem) as problem:
        read_rules(path)
    assert said in problem.value.message and "\n" not in problem.value.message


def test_rules_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"none\.toml cannot be read: No such file"):
        read_rules(tmp_path / "none.toml")


def test_shards_are_a_part_of_the_gpu_s_memory(rules: Rules) -> None:
    sharded = replace(rules, shards=3)
    assert rule_for(SlurmJob("1", shards=1), sharded) == Rule(memory="33.3333%")
    for shards in (3, 4):  # on two GPUs, of each no more than all
        assert rule_for(SlurmJob("1", shards=shards), sharded) == Rule(memory="100%")
    assert rule_for(SlurmJob("1", shards=1), rules) == Rule()
    assert rule_for(SlurmJob("1"), sharded) == Rule()
    # An administrator's own word goes before, and a comment may ask for less.
    assert rule_for(SlurmJob("1", qos="scavenger", shards=3), sharded) == rules.qos["scavenger"]
    assert rule_for(SlurmJob("1", shards=2, comment="cotenant memory=10%"), sharded) == Rule(memory="10%")
    with pytest.raises(Problem):
        rule_for(SlurmJob("1", shards=1, comment="cotenant memory=50%"), sharded)


@pytest.mark.parametrize(
    ("gres", "shards"),
    [
        ("N/A", 0),
        ("gres:shard:20", 20),
        ("gres/shard:20", 20),
        ("gres:shard", 1),
        ("gres:gpu:2,shard:h200:4", 4),
        ("gres:gpu:shardy:3", 0),
        ("(null)", 0),
    ],
)
def test_shards_are_read_as_squeue_writes_them(tmp_path: Path, gres: str, shards: int) -> None:
    found = asked_of_slurm({"SLURM_JOB_ID": "7"}, str(squeue(tmp_path, f"normal|shared|{gres}|a|b")))
    assert (found.shards, found.comment) == (shards, "a|b")


def test_the_rules_that_are_deployed_are_right() -> None:
    found = read_rules(TREE / "deploy" / "slurm" / "slurm.toml")
    assert found.qos["production"] == Rule(TenantClass.production, slowdown="5%")


def test_the_prolog_prints_what_has_changed_as_slurm_reads_it() -> None:
    before = {"A": "1", "B": "2", "PYTHONPATH": "x"}
    assert changes(before, {"A": "1", "B": "3", "C": "two words"}) == [
        "export B=3",
        "export C=two words",
        "unset PYTHONPATH",
    ]
    with pytest.raises(Problem):
        changes({}, {"A": "1\nunset PATH"})


def squeue(tmp_path: Path, answer: str, status: int = 0) -> Path:
    path = tmp_path / "squeue"
    path.write_text(f"#!/bin/sh\necho '{answer}'\nexit {status}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def run_prolog(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    more: str = "",
) -> tuple[int, str, str]:
    path = tmp_path / "slurm.toml"
    path.write_text(f'squeue = "{squeue(tmp_path, answer)}"\n{more}{RULES}')
    monkeypatch.setattr(
        "cotenant.launch.execute.inherited", lambda: {"SLURM_JOB_ID": "7", "PATH": "/usr/bin"}
    )
    status = main(["slurm", "task-prolog", "--rules", str(path)])
    return (status, *capsys.readouterr())


def test_what_cannot_be_shared_runs_without_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "normal|shared|N/A|cotenant class=production"
    status, out, err = run_prolog(tmp_path, monkeypatch, capsys, wrong)
    assert (status, out) == (0, "") and "not yours to take: running without sharing" in err
    status, out, err = run_prolog(tmp_path, monkeypatch, capsys, wrong, "require = true\n")
    assert (status, out) == (2, "") and err.startswith("error: ")


def test_the_prolog_of_a_tenant_prints_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "cotenant.launch.environment.of_command",
        lambda inherited, name, *_: dict(inherited) | {"COTENANT_CLASS": name},
    )
    status, out, _ = run_prolog(tmp_path, monkeypatch, capsys, "scavenger|shared|N/A|(null)")
    assert status == 0
    assert {"export COTENANT_CLASS=opportunistic", "export COTENANT_MEMORY=40%"} <= set(out.splitlines())

    def refuse(*_: object) -> dict[str, str]:
        raise NotShared("no segment", "make one")

    monkeypatch.setattr("cotenant.launch.environment.of_command", refuse)
    status, out, err = run_prolog(tmp_path, monkeypatch, capsys, "scavenger|shared|N/A|(null)")
    assert (status, out) == (0, "") and "no segment: running without sharing" in err


def test_all_tasks_of_a_job_are_one_run_with_what_its_rule_says(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, ...]] = []

    def of_command(inherited: Mapping[str, str], *given: object) -> dict[str, str]:
        made.append(given)
        return dict(inherited) | {"COTENANT_RUN_ID": "anew"}

    monkeypatch.setattr("cotenant.launch.environment.of_command", of_command)
    rule = Rule(TenantClass.opportunistic, weight="2", floor="5%", memory="20G")
    inherited = {"SLURM_CLUSTER_NAME": "here", "COTENANT_MEMORY": "80G", "COTENANT_SLOWDOWN": "1%"}
    job = SlurmJob("7", name="train")
    found = tenant_environment(inherited, job, rule, "/dev/shm/team")
    assert made == [("opportunistic", Path("/dev/shm/team"), "train.7")]
    assert found | {"COTENANT_WEIGHT": "2", "COTENANT_FLOOR": "5%", "COTENANT_MEMORY": "20G"} == found
    assert "COTENANT_SLOWDOWN" not in found  # of an outer run
    assert str(python_path.FOLDER) in found["PYTHONPATH"]
    assert len(found["COTENANT_RUN_ID"]) == 32
    assert tenant_environment(inherited, job, rule, "")["COTENANT_RUN_ID"] == found["COTENANT_RUN_ID"]
    for other in (SlurmJob("8"), replace(job, id="71")):
        assert tenant_environment(inherited, other, rule, "")["COTENANT_RUN_ID"] != found["COTENANT_RUN_ID"]
    elsewhere = inherited | {"SLURM_CLUSTER_NAME": "there"}
    assert tenant_environment(elsewhere, job, rule, "")["COTENANT_RUN_ID"] != found["COTENANT_RUN_ID"]
    serve = tenant_environment({}, SlurmJob("9"), Rule(TenantClass.production, slowdown="5%"), "")
    assert (serve["COTENANT_SLOWDOWN"], "PYTHONPATH" in serve) == ("5%", False)
    assert made[-1] == ("production", None, "job.9")


@pytest.mark.parametrize(
    ("inherited", "answer", "said"),
    [
        ({}, "normal|shared|N/A|x", "SLURM_JOB_ID is not set"),
        ({"SLURM_JOB_ID": "7"}, "normal|shared|N/A", "squeue does not know job 7"),
        ({"SLURM_JOB_ID": "7"}, None, "there is no no-such-squeue"),
    ],
)
def test_slurm_that_says_nothing_is_named(
    tmp_path: Path, inherited: dict[str, str], answer: str | None, said: str
) -> None:
    program = "no-such-squeue" if answer is None else str(squeue(tmp_path, answer))
    with pytest.raises(Problem) as told:
        asked_of_slurm(inherited, program)
    assert said in told.value.message and told.value.hint


def test_what_squeue_prints_as_it_fails_is_no_answer(tmp_path: Path) -> None:
    program = squeue(tmp_path, "production|shared|N/A|x", status=1)
    with pytest.raises(Problem, match="does not know job 7"):
        asked_of_slurm({"SLURM_JOB_ID": "7"}, str(program))
    program.write_text("no program\n")
    with pytest.raises(Problem, match="squeue does not answer"):
        asked_of_slurm({"SLURM_JOB_ID": "7"}, str(program))


def test_what_squeue_says_is_the_jobs(tmp_path: Path) -> None:
    program = str(squeue(tmp_path, " high | gpu |gres:gpu:1| (null) "))
    found = asked_of_slurm({"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "train"}, program)
    assert found == SlurmJob("7", "train", "high", "gpu", "", 0)


def test_a_comment_that_is_no_text_fails_no_task(tmp_path: Path) -> None:
    program = squeue(tmp_path, "high|gpu|N/A|caf#")
    program.write_bytes(program.read_bytes().replace(b"#'", b"\xe9'"))
    assert asked_of_slurm({"SLURM_JOB_ID": "7"}, str(program)).comment == "caf\ufffd"


def test_squeue_is_not_looked_for_where_the_user_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who answers for it chooses the class."""
    own = squeue(tmp_path, "production|shared|N/A|x").rename(tmp_path / "squeue-of-mine")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Problem, match="there is no squeue-of-mine"):
        asked_of_slurm({"SLURM_JOB_ID": "7", "PATH": str(tmp_path)}, own.name)


def test_a_job_without_a_rule_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run_prolog(tmp_path, monkeypatch, capsys, "normal|shared|N/A|(null)", "default = false\n")
    assert done == (0, "", "")
