"""Public logs as arrivals: each schema, and what is wrong with a file in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.cluster.logs import registry
from cotenant.cluster.logs.interface import LoggedJob
from cotenant.errors import Problem

PHILLY = """[
{"status": "Pass", "vc": "v", "jobid": "a", "user": "u", "submitted_time": "2017-10-03 00:00:10", "attempts": [
  {"start_time": "2017-10-03 00:01:00", "end_time": "2017-10-03 00:02:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
  {"start_time": "2017-10-03 00:03:00", "end_time": "2017-10-03 00:05:00",
   "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu4"]}]}]},
{"status": "Killed", "vc": "v", "jobid": "never ran", "submitted_time": "2017-10-03 00:00:00", "attempts": []},
{"status": "Pass", "vc": "v", "jobid": "open end", "user": "u", "submitted_time": "2017-10-03 00:00:00", "attempts": [
  {"start_time": "2017-10-03 00:01:00", "end_time": null, "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}
]"""
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u,v,8,64,1,COMPLETED,2020-04-01 00:01:00,2020-04-01 00:01:00,2020-04-01 00:03:00,120,0
8,u,v,0,4,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:01:00,60,0
9,u,v,1,4,1,FAILED,2020-04-01 00:00:30,2020-04-01 00:00:40,2020-04-01 00:00:45,5,10
"""
ALIBABA = """j1,worker,2.0,Terminated,1000.0,1060.0,600.0,29.3,50.0,T4
j2,ps,1.0,Terminated,1010.0,1060.0,600.0,29.3,,
j3,worker,1.0,Running,1020.0,,600.0,29.3,100.0,V100
j4,worker,3.0,Failed,1030.0,1040.0,600.0,29.3,200.0,V100
"""
OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,460,,LS,Running,100,500,110
p1,4000,16384,0,0,,LS,Running,0,500,0
p2,4000,16384,8,1000,,BE,Succeeded,130,200,
"""


def read(tmp_path: Path, text: str) -> list[LoggedJob]:
    path = tmp_path / "log"
    path.write_text(text)
    return registry.read(str(path))


def test_philly_counts_all_attempts_and_the_gpus_of_the_last(tmp_path: Path) -> None:
    assert read(tmp_path, PHILLY) == [LoggedJob("a", 0.0, 180.0, 3)]


def test_helios_leaves_out_jobs_of_the_cpu(tmp_path: Path) -> None:
    assert read(tmp_path, HELIOS) == [LoggedJob("9", 0.0, 5.0, 1), LoggedJob("7", 30.0, 120.0, 8)]


def test_alibaba_2020_has_parts_of_gpus_for_each_instance(tmp_path: Path) -> None:
    assert read(tmp_path, ALIBABA) == [
        LoggedJob("j1/worker", 0.0, 60.0, 2, 0.5),
        LoggedJob("j4/worker", 30.0, 10.0, 6, 1.0),
    ]


def test_a_copy_of_alibabas_log_may_have_a_header_and_a_wrong_line_is_named(tmp_path: Path) -> None:
    head = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    assert read(tmp_path, head + ALIBABA) == read(tmp_path, ALIBABA)
    # Of an uneven part, as many GPUs as it needs, each with the same part.
    uneven = "j5,worker,,Terminated,1000.0,1060.0,600.0,29.3,150.0,T4\n\n"
    assert read(tmp_path, uneven) == [LoggedJob("j5/worker", 0.0, 60.0, 2, 0.75)]
    with pytest.raises(Problem, match="line 1: could not convert"):
        read(tmp_path, ALIBABA.replace("50.0,T4", "half,T4"))


def test_openb_knows_what_is_production(tmp_path: Path) -> None:
    assert read(tmp_path, OPENB) == [
        LoggedJob("p0", 0.0, 390.0, 1, 0.46, True),
        LoggedJob("p2", 30.0, 70.0, 8, 1.0, False),
    ]


def test_a_made_up_log_of_each_schema_is_shipped() -> None:
    assert list(registry.shipped()) == [
        f"made-up-{schema}" for schema in ("alibaba2020", "helios", "openb", "philly")
    ]
    for name in registry.shipped():
        jobs = registry.read(name)
        assert len(jobs) > 200 and jobs[0].at_s == 0
        assert all(job.seconds > 0 and job.gpus > 0 and 0 < job.share <= 1 for job in jobs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "in no known schema"),
        (HELIOS.replace(",120,0", ",soon,0"), "line 2: could not convert string to float: 'soon'"),
        (
            HELIOS.replace("2020-04-01 00:01:00,2020-04-01 00:01:00", "noon,noon"),
            "line 2: 'noon' is no moment",
        ),
        (HELIOS.replace(",duration,", ",length,"), "has no column 'duration'"),
        (HELIOS.replace(",120,0", ",120"), "line 2: 11 columns instead of 12"),
        (HELIOS.replace(",120,0", ",inf,0"), "line 2: 'inf' is no amount"),
        (HELIOS.replace(",120,0", ",-1,0"), "line 2: '-1' is no amount"),
        (OPENB.replace(",460,", ",half,"), "line 2: could not convert string to float: 'half'"),
        (OPENB.partition("\n")[0] + "\n", "has no job that ran on a GPU"),
        (PHILLY.replace('"submitted_time"', '"submitted"'), "job 1: KeyError: 'submitted_time'"),
        (PHILLY[:-1], "cannot be read"),
    ],
)
def test_a_wrong_log_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Problem) as problem:
        read(tmp_path, text)
    assert said in problem.value.message
    assert problem.value.hint and "\n" not in problem.value.message


def test_a_log_that_is_not_there_has_the_nearest_name_as_a_hint() -> None:
    with pytest.raises(Problem) as problem:
        registry.read("made-up-helio")
    assert problem.value.hint == "did you mean 'made-up-helios'?"
