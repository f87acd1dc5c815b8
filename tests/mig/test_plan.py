"""Which partition a list of jobs gets."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import Problem
from cotenant.mig.geometry import GIB, MODELS, SLICES, Geometry, known
from cotenant.mig.plan import Need, commands, free_profiles, placed, plan
from cotenant.profile import store
from cotenant.profile.job import Job

if TYPE_CHECKING:
    from tests.conftest import Run


def geometry(model: str = "NVIDIA H200") -> Geometry:
    found = known(model)
    assert found is not None
    return found


def need(name: str, gib: float, sms: float = 0.0) -> Need:
    return Need(name, int(gib * GIB), sms, "stated")


def test_every_model_in_the_table_has_the_partitions_that_nvidia_documents() -> None:
    for model in MODELS:
        found = geometry(model)
        assert [one.id for one in found.profiles] == [19, 15, 14, 9, 5, 0]
        by_name = {one.name.split(".")[0]: number for number, one in enumerate(found.profiles)}
        for row, fits in (
            ({"7g": 1}, True), ({"4g": 1, "3g": 1}, True), ({"3g": 2}, True), ({"4g": 2}, False),
            ({"2g": 3, "1g": 1}, True), ({"3g": 1, "2g": 2}, True), ({"7g": 2}, False),
        ):  # fmt: skip
            counts = [0] * len(found.profiles)
            for name, count in row.items():
                counts[0 if name == "1g" else by_name[name]] = count
            assert (placed(found.profiles, tuple(counts)) is not None) == fits, (model, row)
        assert placed(found.profiles, (7, 0, 0, 0, 0, 0)) is not None
        assert placed(found.profiles, (8, 0, 0, 0, 0, 0)) is None
    assert known("NVIDIA L4") is None
    assert geometry("NVIDIA A100-SXM4-40GB").profiles[0].name == "1g.5gb"
    assert geometry("NVIDIA A100-SXM4-80GB").profiles[0].name == "1g.10gb"


def test_memory_decides_first_and_then_sms() -> None:
    serve, train = plan(geometry(), [need("serve", 10, 16), need("train", 40, 50)])
    assert (serve.profile.name, train.profile.name) == ("1g.18gb", "3g.71gb")
    small, large = plan(geometry(), [need("small", 5, 60), need("large", 60, 10)])
    assert {small.profile.name, large.profile.name} == {"3g.71gb"} or small.profile.name == "4g.71gb"
    # Both cannot have all the SMs that they fill: who needs them goes without the least.
    one, other = plan(geometry(), [need("one", 1, 132), need("other", 1, 16)])
    assert one.profile.sms == 64 and other.profile.name == "1g.18gb"


def test_no_more_is_taken_than_is_needed_and_what_is_left_is_told() -> None:
    found = plan(geometry(), [need("a", 10), need("b", 10)])
    assert [one.profile.name for one in found] == ["1g.18gb", "1g.18gb"]
    assert free_profiles(geometry(), found)[0] == "4g.71gb"
    whole = plan(geometry(), [need("a", 120)])
    assert whole[0].profile.name == "7g.141gb" and free_profiles(geometry(), whole) == []


def test_of_two_that_are_as_good_the_one_with_fewer_slices_is_taken() -> None:
    """14 + 28 + 28 + 28 SMs are as many as 14 + 14 + 28 + 42, in one slice less."""
    found = plan(geometry("NVIDIA A100-SXM4-40GB"), [need(name, 1, 42) for name in "abcd"])
    assert sorted(one.profile.name for one in found) == ["1g.5gb", *["2g.10gb"] * 3]


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ([need("a", 200)], "a needs 200.0 GiB"),
        ([need("a", 60), need("b", 60), need("c", 1)], "no partition"),
        ([need(str(i), 1) for i in range(8)], "no partition"),
    ],
)
def test_what_fits_nowhere_is_refused(needs: list[Need], message: str) -> None:
    with pytest.raises(Problem) as refused:
        plan(geometry(), needs)
    assert message in refused.value.message and refused.value.hint


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.lists(st.tuples(st.floats(0.5, 100), st.floats(0, 132)), min_size=1, max_size=7),
)
def test_instances_never_overlap_and_hold_what_they_must(
    model: str, wanted: list[tuple[float, float]]
) -> None:
    needs = [need(f"job-{i}", gib, sms) for i, (gib, sms) in enumerate(wanted)]
    try:
        found = plan(geometry(model), needs)
    except Problem:
        return
    for one, (gib, _) in zip(found, wanted, strict=True):
        assert one.start in one.profile.starts and one.profile.memory_bytes >= int(gib * GIB)
    taken = [range(one.start, one.start + one.profile.size) for one in found]
    assert all(not set(a) & set(b) for a, b in itertools.combinations(taken, 2))
    assert all(max(slices) < SLICES for slices in taken)


def test_the_commands_make_what_was_planned_after_what_was_there() -> None:
    found = plan(geometry(), [need("serve", 10), need("train", 40)])
    tuples = ",".join(f"{one.profile.id}:{one.start}" for one in found)
    assert commands("0", found, is_on=False, has_instances=False) == [
        "nvidia-smi -i 0 -mig 1",
        f"nvidia-smi mig -i 0 -cgi {tuples} -C",
        "nvidia-smi -L",
    ]
    assert commands("1", found, is_on=True, has_instances=True)[:2] == [
        "nvidia-smi mig -i 1 -dci",
        "nvidia-smi mig -i 1 -dgi",
    ]


def test_the_command_plans_for_a_gpu_that_is_not_here(cotenant: Run, plain_env: dict[str, str]) -> None:
    done = cotenant("mig", "plan", "--model", "H200", "serve=10G,16", "train=40G,30%", env=plain_env)
    assert done.returncode == 0, done.stderr
    assert (
        "3g.71gb" in done.stdout
        and "nvidia-smi -i 0 -mig 1" in done.stdout
        and "Nothing was changed" in done.stdout
    )


def test_a_profiled_job_needs_no_numbers(cotenant: Run, plain_env: dict[str, str], tmp_path: object) -> None:
    env = plain_env | {"XDG_CACHE_HOME": str(tmp_path)}
    store.add_job(env, "train.py", "NVIDIA H200", Job(9.0, 0.9, 0.4, 20 << 30, 140 << 30, {}, 0.0))
    done = cotenant("mig", "plan", "--model", "NVIDIA H200", "-o", "json", "train.py", "serve=4G", env=env)
    train, serve = json.loads(done.stdout)["instances"]
    assert (train["from"], train["needs_memory_bytes"], train["needs_sms"]) == ("profile", 23 << 30, 52.8)
    assert (train["profile"], serve["profile"]) == ("3g.71gb", "1g.18gb")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "no jobs given"),
        (["serve"], "there is no profile of 'serve'"),
        (["serve=lots"], "no size of memory"),
        (["serve=1G,200%"], "has 132 SMs"),
        (["serve=1G,x"], "no number or share"),
        (["=1G"], "names no job"),
        (["a=1G", "a=1G"], "named twice"),
        (["--model", "L4", "a=1G"], "unknown model of GPU 'L4'"),
    ],
)
def test_a_mistake_is_an_error_and_a_hint(
    cotenant: Run, plain_env: dict[str, str], arguments: list[str], error: str, tmp_path: object
) -> None:
    env = plain_env | {"XDG_CACHE_HOME": str(tmp_path), "COTENANT_MIG_MODEL": "H200"}
    done = cotenant("mig", "plan", *arguments, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert error in first and second.startswith("hint: ")
