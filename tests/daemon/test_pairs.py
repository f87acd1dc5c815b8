"""What policies learn of pairs of programs is kept over runs: the file pairs.json, and the daemon that writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.commands.daemon import command
from cotenant.daemon.attachment import Attachment
from cotenant.daemon.loop import Daemon
from cotenant.mps import pairs
from cotenant.mps.sharing import Wanted, known_of
from cotenant.policies.interface import Met, Pair
from tests.daemon.made import add, policy_file
from tests.segments import Written

GPU, NOW, DAY = "GPU-1", 2_000_000_000.0, 86400.0
PAIR = Pair("serve.py", "train.py", True)
STUDENT = """
from cotenant.policies.interface import Knobs, Met, Pair, Policy
class Student(Policy):
    name, title, every_ms = "student", "learns", 10
    known = {}
    def recall(self, pairs): self.known = dict(pairs)
    def learned(self): return {Pair("serve.py", "train.py", False): Met(0.01)}
    def explain(self, tenant):
        return [f"{pair.beside}: {met.overlap}" for pair, met in self.known.items()]
"""
CARELESS = """
from cotenant.policies.interface import Policy
class Careless(Policy):
    name, title = "careless", "learns nonsense"
    def learned(self): return {"serve.py": 3}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "pairs.json"


def test_what_was_seen_counts_half_after_a_week_and_is_forgotten_after_a_month(file: Path) -> None:
    assert pairs.keep(file, GPU, {PAIR: Met(0.03, 0.01)}, NOW)
    met = pairs.on_gpu(pairs.read(file, NOW + 7 * DAY), GPU, NOW + 7 * DAY)[PAIR]
    assert (met.overlap, met.strict) == (0.03, 0.01) and met.trust == pytest.approx(0.5)
    assert not pairs.read(file, NOW + 31 * DAY)
    assert not pairs.on_gpu(pairs.read(file, NOW), "GPU-2", NOW)


def test_two_daemons_write_one_file_and_the_newest_of_a_pair_counts(file: Path) -> None:
    other = Pair("serve.py", "other.py", False)
    pairs.keep(file, GPU, {PAIR: Met(0.03)}, NOW)
    pairs.keep(file, GPU, {other: Met(0.2)}, NOW)
    pairs.keep(file, GPU, {PAIR: Met(0.4)}, NOW + 10)
    seen = pairs.read(file, NOW + 10)
    assert {key: one.overlap for key, one in seen.items()} == {(GPU, PAIR): 0.4, (GPU, other): 0.2}


def test_what_is_no_news_is_not_written_again(file: Path) -> None:
    pairs.keep(file, GPU, {PAIR: Met(0.03)}, NOW)
    before = file.stat().st_mtime_ns, file.stat().st_ino
    assert pairs.keep(file, GPU, {PAIR: Met(0.031)}, NOW + 60)
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == before
    pairs.keep(file, GPU, {PAIR: Met(0.031)}, NOW + 2 * 3600)
    assert pairs.read(file, NOW)[GPU, PAIR].at == NOW + 2 * 3600


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"version": 2, "pairs": []}',
        '{"version": 1, "pairs": [{"gpu": "GPU-1"}]}',
        '{"version": 1, "pairs": [{"gpu": "G", "production": "a", "beside": "b", "together": 1, "strict": 0,'
        ' "overlap": NaN, "at": 2e9}]}',
        '{"version": 1, "pairs": [{"gpu": "G", "production": "a", "beside": "b", "together": 1, "strict": 0,'
        f' "overlap": 1{"0" * 400}, "at": 2e9}}]}}',
        '{"version": 1, "pairs": [{"gpu": 3, "production": "a", "beside": "b", "together": 1, "strict": 0,'
        ' "overlap": 0, "at": 2e9}]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_or_one_of_another_version_is_replaced(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    assert not pairs.read(file, NOW)
    pairs.keep(file, GPU, {PAIR: Met(0.03)}, NOW)
    assert json.loads(file.read_text())["version"] == pairs.VERSION


def test_the_file_does_not_grow_without_end(file: Path) -> None:
    met = {Pair("serve.py", f"job-{number}", False): Met(0.01) for number in range(pairs.MOST_PAIRS + 100)}
    pairs.keep(file, GPU, met, NOW)
    assert len(pairs.read(file, NOW)) == pairs.MOST_PAIRS
    assert file.stat().st_size < pairs.MOST_BYTES


def test_without_a_cache_or_where_it_cannot_be_written_nothing_fails(tmp_path: Path) -> None:
    assert pairs.file_in({}) is None and not pairs.read(None)
    (tmp_path / "file").touch()
    assert not pairs.keep(tmp_path / "file" / "pairs.json", GPU, {PAIR: Met(0.03)}, NOW)


def test_while_another_daemon_writes_it_is_kept_for_later(file: Path) -> None:
    with pairs.held(file):
        assert not pairs.keep(file, GPU, {PAIR: Met(0.5)})
    assert not file.exists()
    assert pairs.keep(file, GPU, {PAIR: Met(0.5)}) and pairs.read(file)[GPU, PAIR].overlap == 0.5


def test_what_was_seen_outside_of_mps_says_nothing_of_overlap_there(file: Path) -> None:
    pairs.keep(file, GPU, {PAIR: Met(0.01)}, NOW)
    pairs.keep(file, GPU, {Pair(PAIR.production, "other.py", False): Met(0.5)}, NOW + 10)
    known = pairs.read(file, NOW + 10)
    seen = pairs.of_job(known, PAIR.production, is_production=True)
    assert seen and seen.overlap == 0.01
    assert pairs.of_job(known, "other.py", is_production=False) is None


@pytest.mark.parametrize(
    ("overlap", "age_days", "harmless"), [(0.01, 0, True), (0.3, 1, False), (0.3, 20, None)]
)
def test_auto_goes_by_what_was_seen_of_the_job_until_that_is_old(
    tmp_path: Path, overlap: float, age_days: float, harmless: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    pairs.keep(pairs.file_in(environment), GPU, {PAIR: Met(overlap)}, NOW)
    monkeypatch.setattr("time.time", lambda: NOW + age_days * DAY)
    for job, tenant_class in (
        ("train.py", TenantClass.opportunistic),
        ("serve.py", TenantClass.production),
    ):
        known = known_of(environment, Wanted("auto", False, tenant_class, None, None, job))
        assert (known.harmless if known else None) is harmless
    assert (
        known_of(environment, Wanted("auto", False, TenantClass.production, None, None, "train.py")) is None
    )


def test_the_daemon_keeps_what_a_policy_learns_and_tells_the_next_one(
    attachment: Attachment, tmp_path: Path, file: Path
) -> None:
    uuid = attachment.uuids()[0]
    one = Daemon(attachment, policy_file(tmp_path, STUDENT), 10, pairs_file=file)
    one.tick()
    assert pairs.read(file)[uuid, Pair("serve.py", "train.py", False)].overlap == 0.01
    assert one.learned == {0: {}}  # what is kept does not come again as new
    two = Daemon(attachment, policy_file(tmp_path, STUDENT), 10, pairs_file=file)
    two.tick()
    assert two.explained(0, attachment.look().views[0].tenants[0].id) == ["train.py: 0.01"]


def test_what_was_learned_on_one_gpu_is_recalled_on_that(native: Path, tmp_path: Path, file: Path) -> None:
    written = Written()
    for gpu in (0, 1):
        written.gpu(gpu, bytes([gpu] * 16))
    slot = add(written, 0, 100, TenantClass.production)
    slot.gpus[1].busy, slot.gpus[1].figures.bursts = 1, 1
    attached = Attachment(written.to(tmp_path / "segment"))
    pairs.keep(file, attached.uuids()[1], {PAIR: Met(0.5)})
    one = Daemon(attached, policy_file(tmp_path, STUDENT), 10, pairs_file=file)
    one.tick()
    (tenant,) = attached.look().views[0].tenants
    assert [one.explained(gpu, tenant.id) for gpu in (0, 1)] == [[], ["train.py: 0.5"]]
    attached.close()


def test_a_policy_that_learns_nonsense_goes_on_and_nothing_is_kept(
    attachment: Attachment, tmp_path: Path, file: Path
) -> None:
    one = Daemon(attachment, policy_file(tmp_path, CARELESS), 10, pairs_file=file)
    one.tick()
    assert not one.problem and not file.exists()


def test_a_tenant_is_known_by_the_name_of_its_job(attachment: Attachment) -> None:
    attachment.slots[0].name, attachment.slots[0].job = b"python3", b""
    attachment.slots[70].name, attachment.slots[70].job = b"python3", b"train.py"
    assert [one.program for one in attachment.look().views[0].tenants] == ["python3", "train.py"]


def test_jobs_of_a_segment_of_their_own_are_no_rule_for_later_ones(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a benchmark's."""
    kept: list[Path | None] = []
    monkeypatch.setattr(Daemon, "run", lambda self: kept.append(self.pairs_file))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for default in (tmp_path / "default", path):
        monkeypatch.setattr(segment, "path_for", lambda environment, default=default: default)
        assert CliRunner().invoke(command, ["--segment", str(path)]).exit_code == 0
    assert kept == [None, tmp_path / "cotenant" / "pairs.json"]


def test_nothing_is_kept_without_a_file_or_without_news(tmp_path: Path) -> None:
    pair = Pair("serve", "train", False)
    assert pairs.keep(None, "GPU-1", {pair: Met(0.1)})
    file = tmp_path / "pairs.json"
    assert pairs.keep(file, "GPU-1", {}) and pairs.keep(file, "", {pair: Met(0.1)})
    assert not file.exists()
