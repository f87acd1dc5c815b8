"""Which partition a list of jobs gets."""

from __future__ import annotations

import ctypes
import itertools
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.commands import mig as command
from cotenant.errors import Problem
from cotenant.gpus import nvml
from cotenant.launch import driver
from cotenant.mig import needs
from cotenant.mig.card import Card, here
from cotenant.mig.geometry import GIB, MODELS, SLICES, Geometry, Profile, from_nvml, known
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


@pytest.mark.parametrize(
    ("model", "sms", "profiles"),
    [
        ("A100-40GB", 108, "1g.5gb 14 4.75, 1g.10gb 14 9.62, 2g.10gb 28 9.62, 3g.20gb 42 19.5, 4g.20gb 56 19.5, "
         "7g.40gb 98 39.25"),
        ("A100-80GB", 108, "1g.10gb 14 9.5, 1g.20gb 14 19.5, 2g.20gb 28 19.5, 3g.40gb 42 39.25, 4g.40gb 56 39.25, "
         "7g.80gb 98 78.75"),
        ("H100", 132, "1g.10gb 16 9.75, 1g.20gb 26 19.62, 2g.20gb 32 19.62, 3g.40gb 60 39.5, 4g.40gb 64 39.5, "
         "7g.80gb 132 79.25"),
        ("H200", 132, "1g.18gb 16 16, 1g.35gb 26 32.5, 2g.35gb 32 32.5, 3g.71gb 60 65.5, 4g.71gb 64 65.5, "
         "7g.141gb 132 131"),
        ("B200", 148, "1g.23gb 18 20.5, 1g.45gb 30 44.25, 2g.45gb 36 44.25, 3g.90gb 70 86, 4g.90gb 72 86, "
         "7g.180gb 148 172"),
    ],
)  # fmt: skip
def test_the_table_is_what_nvidia_smi_says(model: str, sms: int, profiles: str) -> None:
    found = geometry(model)
    assert found.sms == sms
    told = [f"{one.name} {one.sms} {round(one.memory_bytes / GIB, 2):g}" for one in found.profiles]
    assert ", ".join(told) == profiles


def test_a_gh200_is_an_h200_to_mig_only_with_its_memory() -> None:
    assert geometry("NVIDIA GH200 144G HBM3e").profiles[0].name == "1g.18gb"
    assert known("NVIDIA GH200 480GB") is None


def test_a_plan_in_words_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    card = Card(geometry("H200"), "3", is_on=True, instances=("MIG-1",))
    found = plan(card.geometry, [need("serve", 10, 16), need("wide", 1, 128), need("any", 1)])
    free = free_profiles(card.geometry, found)
    lines = ["first", "second"]
    command.print_plan(card, found, lines, free)
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines()]
    assert rows[0] == ["H200:"]
    assert rows[1] == ["JOB", "NEEDS", "SMS", "FROM", "INSTANCE", "HAS", "SMS", "PLACE"]
    assert rows[2][:-1] == ["serve", "10.0", "GiB", "16", "stated", "1g.18gb", "16.0", "GiB", "16"]
    assert rows[3] == ["wide", "1.0", "GiB", "128", "stated", "4g.71gb", "65.5", "GiB", "64", "0"]
    assert rows[4][3:6] == ["any", "stated", "1g.18gb"]
    assert "wide gets 50% of the SMs that its kernels fill" in shown and "serve gets" not in shown
    assert f"free: {', '.join(free)}" in shown and "\n    first\n    second\n" in shown
    command.print_json(card, found, lines, [])
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["model"], document["free"]) == (1, "H200", [])
    assert document["commands"] == lines
    assert document["instances"][1] == {
        "job": "wide", "from": "stated", "needs_memory_bytes": GIB, "needs_sms": 128, "profile": "4g.71gb",
        "profile_id": 5, "placement": 0, "memory_bytes": int(65.5 * GIB), "sms": 64,
    }  # fmt: skip
    command.print_plan(card, found, lines, [])
    assert "free: nothing" in capsys.readouterr().out


def test_needs_are_sms_or_a_share_of_them_and_a_profile_has_a_tenth_more(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    here = geometry("H200")
    assert needs.read("a=10G,16", here, environment) == Need("a", 10 * GIB, 16.0, "stated")
    assert needs.read("a=10G,25%", here, environment).sms == 33
    assert needs.read("a=1M,132", here, environment).sms == 132
    for wrong in ("133", "0", "100.1%"):
        with pytest.raises(Problem, match="has 132 SMs"):
            needs.read(f"a=1G,{wrong}", here, environment)
    store.add_job(environment, "other", "L4", Job(9.0, None, None, 10 << 30, 0, {}, 0.0))
    assert needs.read("other", here, environment) == Need("other", 12 * GIB, 0.0, "profile")
    store.add_job(environment, "other", "H200", Job(9.0, None, 0.5, 20 << 30, 0, {}, 0.0))
    assert needs.read("other", here, environment) == Need("other", 23 * GIB, 66.0, "profile")  # on this model
    with pytest.raises(Problem) as refused:
        needs.read("none", here, environment)
    assert refused.value.hint.endswith("profiles: other")


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


def test_a_job_may_need_all_of_an_instances_memory() -> None:
    for profile in geometry().profiles:
        (found,) = plan(geometry(), [Need("a", profile.memory_bytes, profile.sms, "stated")])
        assert (found.profile.memory_bytes, found.profile.sms) == (profile.memory_bytes, profile.sms)


def test_an_instance_that_leaves_no_place_for_the_next_is_placed_elsewhere() -> None:
    """The first is tried at 2, where the second fits neither at 0 nor at 3."""
    narrow = (Profile("first", 1, 10, 1 * GIB, 3, (0, 2)), Profile("second", 2, 20, 2 * GIB, 3, (0, 3)))
    found = plan(Geometry("any", 30, narrow), [need("a", 1), need("b", 2)])
    assert [(one.profile.name, one.start) for one in found] == [("first", 0), ("second", 3)]


class FakeNvml:
    """Profile numbers to (name, id, SMs, MiB, size, starts); what is missing is not supported."""

    class NVMLError(Exception):
        pass

    class c_nvmlGpuInstancePlacement_t(ctypes.Structure):
        _fields_ = (("start", ctypes.c_uint), ("size", ctypes.c_uint))

    def __init__(self, profiles: dict[int, tuple[str | bytes, int, int, int, int, tuple[int, ...]]]) -> None:
        self.profiles = profiles

    def nvmlDeviceGetGpuInstanceProfileInfo(
        self, device: object, which: int, version: int
    ) -> SimpleNamespace:
        if which not in self.profiles:
            raise self.NVMLError
        name, number, sms, mib, *_ = self.profiles[which]
        return SimpleNamespace(name=name, id=number, multiprocessorCount=sms, memorySizeMB=mib)

    def nvmlDeviceGetGpuInstancePossiblePlacements(
        self, device: object, number: int, found: Any, count: Any
    ) -> None:
        size, starts = next(one[4:] for one in self.profiles.values() if one[1] == number)
        counted = ctypes.cast(count, ctypes.POINTER(ctypes.c_uint)).contents
        if found is not None:
            assert counted.value == len(starts)
            for place, start in enumerate(starts):
                found[place].start, found[place].size = start, size
        counted.value = len(starts)


def test_the_drivers_profiles_are_those_for_computing_smallest_first() -> None:
    ml = FakeNvml(
        {
            0: ("MIG 7g.8gb", 10, 70, 8192, 8, (0,)),
            2: (b"MIG 1g.1gb", 11, 10, 1024, 1, (1, 0)),
            3: ("MIG 1g.1gb+me", 12, 10, 1024, 1, (0,)),
            4: ("MIG 2g.2gb", 13, 20, 2048, 2, ()),
            5: ("MIG again", 11, 10, 1024, 1, (1, 0)),
        }
    )
    profiles = (Profile("1g.1gb", 11, 10, GIB, 1, (0, 1)), Profile("7g.8gb", 10, 70, 8 * GIB, 8, (0,)))
    assert from_nvml(ml, None, "any", 0) == Geometry("any", 70, profiles)
    assert from_nvml(ml, None, "any", 72) == Geometry("any", 72, profiles)
    assert from_nvml(FakeNvml({}), None, "any", 72) is None


def test_a_gpu_that_is_lost_is_not_asked_for_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(FakeNvml):
        def nvmlDeviceGetCount(self) -> int:
            return 2

        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
            if index == 0:
                raise self.NVMLError
            return index

    listed = (
        nvml.Gpu(0, uuid="", pci_id="", name="", problem="GPU is lost"),
        nvml.Gpu(1, uuid="GPU-1", pci_id="", name="NVIDIA H200"),
    )
    monkeypatch.setattr(driver, "find", lambda environment: None)
    monkeypatch.setattr(nvml, "session", lambda driver: nullcontext(Two({})))
    monkeypatch.setattr(nvml, "describe", lambda ml, index: listed[index])
    assert here({}, None) == Card(geometry(), "1", is_on=False, instances=())


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([need("a", 200)], "a needs 200.0 GiB, the largest instance of NVIDIA H200 has 131.0 GiB"),
        ([need("a", 60), need("b", 60), need("c", 1)], "no partition"),
        ([need(str(i), 1) for i in range(8)], "no partition"),
    ],
)
def test_what_fits_nowhere_is_refused(wanted: list[Need], message: str) -> None:
    with pytest.raises(Problem) as refused:
        plan(geometry(), wanted)
    assert message in refused.value.message and refused.value.hint


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.lists(st.tuples(st.floats(0.5, 100), st.floats(0, 132)), min_size=1, max_size=7),
)
def test_instances_never_overlap_and_hold_what_they_must(
    model: str, wanted: list[tuple[float, float]]
) -> None:
    try:
        found = plan(geometry(model), [need(f"job-{i}", gib, sms) for i, (gib, sms) in enumerate(wanted)])
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
