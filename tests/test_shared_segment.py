"""`cotenant segment`, and what the other commands make of an administrator's segment."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment, units
from cotenant.commands import segment as segment_command
from cotenant.segment import FolderSegment, paths
from cotenant.segment.folder import create_folder
from cotenant.segment.grants import Grant, Subject, best_class, grants_in, write_grants
from cotenant.segment.wire import SubjectKind
from tests.segments import UUID, UUID_TEXT, Written, sign

if TYPE_CHECKING:
    from tests.conftest import Run, RunPython

NOBODY = 65534
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")


@pytest.fixture
def place(native: Path) -> Iterator[Path]:
    """Where there is no segment yet; other users come in."""
    with tempfile.TemporaryDirectory(prefix="cotenant-test-") as beside:
        Path(beside).chmod(0o755)
        yield Path(beside) / "segment"


@pytest.fixture
def folder(place: Path) -> Path:
    create_folder(place, None, [], [UUID])
    return place


def put_slot(
    folder: Path, index: int, pid: int, tenant_class: int = 1, owner: int | None = None
) -> segment.Slot:
    slot = Written().tenant(index, pid, tenant_class=tenant_class, owner=owner)
    sign(slot)
    (folder / "slots" / str(index)).write_bytes(bytes(slot).ljust(segment.PLACE, b"\0"))
    return slot


def shown(cotenant: Run, folder: Path) -> dict[str, object]:
    done = cotenant("segment", "show", folder, "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_create_makes_what_show_shows(cotenant: Run, place: Path) -> None:
    words = ["--allow", "0=production", "--allow", "@0=standard", "--limit", "65534=20G", "--gpu", UUID_TEXT]
    done = cotenant("segment", "create", place, *words)
    assert (done.returncode, done.stdout) == (0, "")
    about = shown(cotenant, place)
    assert about["gpus"] == [UUID_TEXT]
    assert sorted(map(tuple, (grant.values() for grant in about["grants"])), key=str) == sorted(  # type: ignore[attr-defined]
        [
            ("root", "production", None),
            (shared_user_name(NOBODY), None, "20G"),
            ("@" + shared_group_name(0), "standard", None),
            ("*", "standard", None),  # who is not named, once somebody is
        ],
        key=str,
    )
    assert about["slots"] == []
    assert "standard" in cotenant("segment", "show", place).stdout
    assert [oct(path.stat().st_mode & 0o7777) for path in (place, place / "header", place / "slots")] == [
        "0o755",
        "0o644",
        "0o1777",
    ]


def shared_user_name(uid: int) -> str:
    from cotenant.commands.segment import user_name

    return user_name(uid)


def shared_group_name(gid: int) -> str:
    from cotenant.commands.segment import group_name

    return group_name(gid)


def test_a_group_keeps_others_out(cotenant: Run, place: Path) -> None:
    group = os.getegid()
    assert cotenant("segment", "create", place, "--group", str(group), "--gpu", UUID_TEXT).returncode == 0
    assert [oct(path.stat().st_mode & 0o7777) for path in (place, place / "slots")] == ["0o750", "0o1770"]
    assert (place / "slots").stat().st_gid == group


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["--allow", "nobody-of-that-name=production"], "unknown user", "WHO is"),
        pytest.param(
            ["--allow", f"{'9' * 5000}=standard"], "no user's and no group's", "WHO is", id="digits"
        ),
        (["--allow", "@nobody-of-that-name=production"], "unknown group", "name or number"),
        (["--allow", "0"], "names no value", "WHO=WHAT"),
        (["--allow", "0=prodution"], "unknown class 'prodution'", "did you mean 'production'?"),
        (["--allow", "0=standard", "--allow", "root=production"], "named twice", ""),
        (["--limit", "0=lots"], "no memory limit", "20G"),
        (["--limit", "99999999999=1G"], "no user's", ""),
        (["--gpu", "GPU-12"], "no GPU's UUID", "nvidia-smi -L"),
        (["--gpu", UUID_TEXT] * 17, "17 GPUs are too many", "16"),
        ([word for i in range(33) for word in ("--limit", f"{i}=1G")], "33 grants are too many", "groups"),
    ],
)
def test_a_mistake_makes_nothing(cotenant: Run, place: Path, words: list[str], error: str, hint: str) -> None:
    done = cotenant("segment", "create", place, *words, *([] if "--gpu" in words else ["--gpu", UUID_TEXT]))
    assert (done.returncode, done.stdout) == (2, "")
    first, *second = done.stderr.splitlines()
    assert error in first and hint in "".join(second)
    assert not list(place.parent.iterdir())


def test_what_exists_is_left_alone(cotenant: Run, folder: Path) -> None:
    before = (folder / "header").read_bytes()
    done = cotenant("segment", "create", folder, "--gpu", UUID_TEXT)
    assert done.returncode == 1 and "exists already" in done.stderr
    assert (folder / "header").read_bytes() == before
    assert list(folder.parent.iterdir()) == [folder]


def test_without_a_gpu_there_is_nothing_to_share(
    cotenant: Run, plain_env: dict[str, str], place: Path
) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has one")
    done = cotenant("segment", "create", place, env=plain_env)
    assert done.returncode == 1 and "--gpu UUID" in done.stderr
    assert not place.exists()


def test_grants_change_one_by_one(cotenant: Run, folder: Path) -> None:
    def grants(*words: str) -> list[Grant]:
        assert cotenant("segment", "grants", folder, *words).returncode == 0
        return grants_in(FolderSegment(folder).read_header())

    size = units.encoded_limit("30%")
    user = Subject(SubjectKind.user, 7)
    assert grants("--allow", "7=standard") == [Grant(user, 1)]
    assert grants("--limit", "7=30%") == [Grant(user, 1, size)]
    assert grants("--allow", "*=opportunistic", "--allow", "7=any") == [
        Grant(user, None, size),
        Grant(Subject(SubjectKind.everybody), 2),
    ]
    assert grants("--limit", "7=none", "--allow", "*=any") == []


def test_grants_without_a_change_are_shown(cotenant: Run, folder: Path) -> None:
    def shown_grants(*words: str) -> str:
        done = cotenant("segment", "grants", folder, *words)
        assert (done.returncode, done.stderr) == (0, "")
        return str(done.stdout)

    assert shown_grants() == "no grants\n"
    before = (folder / "header").read_bytes()
    assert json.loads(shown_grants("-o", "json")) == {"grants": []}
    assert (folder / "header").read_bytes() == before
    assert cotenant("segment", "grants", folder, "--allow", "7=standard", "--limit", "@8=20G").returncode == 0
    grants = [
        {"who": shared_user_name(7), "class": "standard", "memory": None},
        {"who": "@" + shared_group_name(8), "class": None, "memory": "20G"},
    ]
    assert json.loads(shown_grants("-o", "json"))["grants"] == grants == shown(cotenant, folder)["grants"]
    heading, *lines = (line.split() for line in shown_grants().splitlines())
    assert heading == ["WHO", "CLASS", "MEMORY"]
    assert lines == [[value or "-" for value in grant.values()] for grant in grants]


@pytest.mark.parametrize("what", [["show"], ["clean"], ["grants", "--allow", "0=production"]])
def test_where_there_is_none(cotenant: Run, tmp_path: Path, what: list[str]) -> None:
    missing = cotenant("segment", what[0], tmp_path / "none", *what[1:])
    assert missing.returncode == 1 and "there is no segment" in missing.stderr
    (tmp_path / "file").write_bytes(Written().bytes())
    of_one_user = cotenant("segment", what[0], tmp_path / "file", *what[1:])
    assert of_one_user.returncode == 2 and "no administrator's segment" in of_one_user.stderr


def test_readers_believe_the_file_not_the_slot(folder: Path) -> None:
    with FolderSegment(folder).writable_header() as header:
        write_grants(header, [Grant(Subject(SubjectKind.user, os.geteuid()), 1)])
    put_slot(folder, 3, pid=4711, tenant_class=0)
    (one,) = segment.read(folder).tenants
    assert (one.pid, one.uid, one.tenant_class) == (4711, os.geteuid(), 1)


def test_what_is_no_slot_is_passed_over(folder: Path) -> None:
    put_slot(folder, 3, pid=4711)
    (folder / "slots" / "4").write_bytes(b"x" * 100)
    (folder / "slots" / "5").symlink_to(folder / "slots" / "3")
    (folder / "slots" / "6").mkdir()
    os.mkfifo(folder / "slots" / "7")
    (folder / "slots" / "8").write_bytes((folder / "slots" / "3").read_bytes() + b"x")
    (folder / "slots" / "300").write_bytes((folder / "slots" / "3").read_bytes())
    assert [one.pid for one in segment.read(folder).tenants] == [4711]


def test_clean_removes_all_but_the_living(cotenant: Run, folder: Path) -> None:
    put_slot(folder, 0, pid=1)
    put_slot(folder, 1, pid=2, owner=2 | segment.OWNER_DIED)
    put_slot(folder, 2, pid=3, owner=0)
    (folder / "slots" / "junk").touch()
    os.mkfifo(folder / "slots" / "7")
    done = cotenant("segment", "clean", folder)
    assert (done.returncode, done.stderr) == (0, f"{folder}: removed 4 files\n")
    assert [path.name for path in (folder / "slots").iterdir()] == ["0"]


def test_clean_leaves_a_slot_that_is_being_made(folder: Path) -> None:
    """By the segment's clock: the files' times are the wall clock's, which jumps."""
    now = segment.now_ns()
    young = folder / "slots" / f"new.1.{now:x}"
    old = folder / "slots" / f"new.2.{now - 100 * 10**9:x}"
    of_tomorrow = folder / "slots" / f"new.3.{now + 10**15:x}"
    for file in (young, old, of_tomorrow):
        file.touch()
        os.utime(file, (0, 0))
    removed, kept = FolderSegment(folder).clean()
    assert (set(removed), kept) == ({old, of_tomorrow}, [])
    assert young.exists()


def test_a_request_goes_into_the_slot(folder: Path) -> None:
    slot = put_slot(folder, 9, pid=4711)
    assert segment.ask(folder, 4711, {"weight": 2000, "memory": 1 << 33})
    assert not segment.ask(folder, 4712, {"weight": 2000})
    now = segment.Slot.from_buffer_copy((folder / "slots" / "9").read_bytes())
    assert (now.asked.weight, now.asked_memory) == (2001, 1 + (1 << 33))
    now.asked.weight = now.asked_memory = now.asked_check = now.asked_timeline_check = 0
    assert bytes(now) == bytes(slot)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_request_waits_until_the_tenant_has_taken_the_one_before(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool, is_stopped: bool
) -> None:
    """The tenant clears what it takes: what came in that moment would be lost. One that is stopped takes both later."""
    if is_shared:
        put_slot(folder, 9, pid=4711)
        path, file, at = folder, folder / "slots" / "9", 0
    else:
        written = Written()
        written.tenant(8, 4711)
        path = file = written.to(tmp_path / "segment")
        at = 9 * segment.PLACE
    taken = []

    def slot_now() -> segment.Slot:
        return segment.Slot.from_buffer_copy(file.read_bytes(), at)

    def take(_: float) -> None:
        slot = slot_now()
        taken.append((slot.asked_memory, slot.residence.asked_pause))
        slot.asked_memory = slot.residence.asked_pause = 0
        with file.open("r+b") as there:
            there.seek(at)
            there.write(bytes(slot))

    monkeypatch.setattr("cotenant.segment.requests.time.sleep", take)
    if is_stopped:
        monkeypatch.setattr("cotenant.segment.requests.TAKEN_SECONDS", 0)
    for request in ({"memory": 5}, {"pause": 0}):
        assert segment.ask(path, 4711, request)
    assert taken == ([] if is_stopped else [(6, 0)])
    slot = slot_now()
    assert (slot.asked_memory, slot.residence.asked_pause) == (6 if is_stopped else 0, 1)


def test_a_policy_is_chosen_in_the_header(folder: Path) -> None:
    for times in (1, 2):
        segment.choose_policy(folder, "strict")
        assert segment.read(folder).policy == "strict"
        # The daemon knows by this that it was named again.
        assert FolderSegment(folder).read_header().choices == times


@pytest.mark.parametrize(("group", "best"), [(NOBODY, 2), (NOBODY - 1, 1)])
def test_what_is_said_most_particularly_counts(folder: Path, group: int, best: int) -> None:
    granted = [Grant(Subject(SubjectKind.everybody), 1), Grant(Subject(SubjectKind.group, NOBODY), 2)]
    with FolderSegment(folder).writable_header() as header:
        write_grants(header, granted)
        assert best_class(header, 1000, group) == best
        write_grants(header, [*granted, Grant(Subject(SubjectKind.user, 1000), 0)])
        assert best_class(header, 1000, group) == 0


@NEEDS_ROOT
def test_another_user_changes_nothing(folder: Path, plain_env: dict[str, str], run_python: RunPython) -> None:
    put_slot(folder, 0, pid=4711)
    before = {path: path.read_bytes() for path in (folder / "header", folder / "slots" / "0")}
    source = """
import os, sys
from pathlib import Path
from cotenant import segment
from cotenant.daemon.attachment import Attachment
folder = Path(sys.argv[1])
# Python and the library may lie where that user does not come in.
segment.wire_library()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
assert [one.pid for one in segment.read(folder).tenants] == [4711]
segment.ensure(folder)
for attempt in (
    lambda: segment.ask(folder, 4711, {'weight': 2000}),
    lambda: segment.choose_policy(folder, 'none'),
    lambda: Attachment(folder),
):
    try: attempt(); print('did it')
    except segment.BadSegment as error: print(error)
print(segment.FolderSegment(folder).clean())
"""
    done = run_python(source, plain_env, folder)
    assert done.returncode == 0, done.stderr
    assert "did it" not in done.stdout
    assert "belongs to user 0" in done.stdout and "belongs to its administrator" in done.stdout
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("gpu", [0, 1])
def test_the_daemon_steers_slots_in_a_folder(folder: Path, gpu: int) -> None:
    from cotenant.daemon.attachment import Attachment
    from cotenant.policies.interface import TenantKnobs

    with FolderSegment(folder).writable_header() as header:
        header.gpus[gpu].known = segment.GPU_VALID
    slot = put_slot(folder, 2, pid=4711)
    slot.gpus[gpu].figures.bursts = 1
    (folder / "slots" / "2").write_bytes(bytes(slot).ljust(segment.PLACE, b"\0"))
    attachment = Attachment(folder)
    try:
        (place,) = attachment.look().places[gpu]
        assert (place.row.slot, place.row.pid) == (2, 4711)

        def steered(knobs: TenantKnobs) -> segment.OnGpu:
            attachment.turn(gpu, attachment.look().places[gpu], {place.id: knobs}, 10**9)
            slot = segment.Slot.from_buffer_copy((folder / "slots" / "2").read_bytes())
            on_gpu, other = slot.gpus[gpu], slot.gpus[1 - gpu]
            assert not any((other.shut_until_ns, other.rate, other.sms, other.tolerant_until_ns))
            assert isinstance(on_gpu, segment.OnGpu)
            return on_gpu

        assert steered(TenantKnobs(shut=True, rate=0.5)).shut_until_ns
        limited = steered(TenantKnobs(rate=0.5))
        assert limited.rate == 500 and limited.rate_until_ns
        after = steered(TenantKnobs())
        assert (after.shut_until_ns, after.rate) == (0, 0)
        assert steered(TenantKnobs(shut=True)).shut_until_ns
        assert steered(TenantKnobs()).shut_until_ns == 0
        fewer = steered(TenantKnobs(sm_share=0.5))
        assert fewer.sms == 500 and fewer.sms_until_ns
        assert steered(TenantKnobs()).sms_until_ns == 0
        assert steered(TenantKnobs(tolerant=True)).tolerant_until_ns
        assert steered(TenantKnobs()).tolerant_until_ns == 0
    finally:
        attachment.close()


def test_roots_folder_is_the_default(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(paths, "SHARED", folder)
    own = Path(f"/dev/shm/cotenant-{os.getuid()}.v{segment.VERSION}")
    assert segment.path_for({}) == (folder if os.geteuid() == 0 else own)
    assert segment.path_for({"COTENANT_SEGMENT": "/x"}) == Path("/x")
    folder.chmod(0o777)
    assert segment.path_for({}) == own
    monkeypatch.setattr(paths, "SHARED", folder / "header")
    assert segment.path_for({}) == own


def test_users_may_read_what_the_administrators_daemon_says_and_not_hold_its_lock(folder: Path) -> None:
    from cotenant.daemon import lock, report

    before = os.umask(0o077)
    try:
        held = lock.acquire(folder)
        report.Report(folder).show("guard", "", {})
    finally:
        os.umask(before)
    assert held is not None
    assert (folder / "daemon.json").stat().st_mode & 0o777 == 0o644
    assert (folder / "daemon.lock").stat().st_mode & 0o777 == 0o600
    lock.release(folder, held)
    assert not (folder / "daemon.lock").exists()


STRANGER = 65533


def test_show_says_in_a_table_that_there_is_nobody(cotenant: Run, folder: Path) -> None:
    done = cotenant("segment", "show", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [f"GPU 0: {UUID_TEXT}", "no grants", "no tenants"]


def test_show_follows_the_option_and_its_variable(
    cotenant: Run, folder: Path, plain_env: dict[str, str]
) -> None:
    by_argument = cotenant("segment", "show", folder, env=plain_env)
    by_option = cotenant("segment", "show", "--segment", folder, env=plain_env)
    by_variable = cotenant("segment", "show", env=plain_env | {"COTENANT_SEGMENT": str(folder)})
    assert by_argument.stdout.startswith(f"{folder}, of ")
    assert by_option.stdout == by_variable.stdout == by_argument.stdout
    own = Written().to(Path(plain_env["COTENANT_SEGMENT"]))
    done = cotenant("segment", "show", env=plain_env)
    assert done.returncode == 2 and f"{own} is no administrator's segment" in done.stderr


def test_run_says_that_the_administrator_grants_a_lower_class(
    cotenant: Run, folder: Path, softgpu_env: dict[str, str]
) -> None:
    env = softgpu_env | {"COTENANT_SEGMENT": str(folder)}
    me = str(os.geteuid())
    # Of programs like `true` run may have something to say, too: where they are busybox's they are statically linked.
    program = [sys.executable, "-c", "print('ran')"]
    assert cotenant("segment", "grants", folder, "--allow", f"{me}=standard").returncode == 0
    done = cotenant("run", "--class", "production", *program, env=env)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    (line,) = done.stderr.splitlines()
    assert "grants you standard at most: running as standard, not as production" in line
    for granted in ("standard", "opportunistic"):
        assert cotenant("run", "--class", granted, *program, env=env).stderr == ""
    assert cotenant("segment", "grants", folder, "--allow", f"{me}=production").returncode == 0
    assert cotenant("run", "--class", "production", *program, env=env).stderr == ""


@NEEDS_ROOT
def test_other_users_see_whether_a_daemon_runs(
    folder: Path, plain_env: dict[str, str], run_python: RunPython
) -> None:
    """They can neither open its lock nor take it."""
    from cotenant.daemon import lock

    source = """
import os, sys
from pathlib import Path
from cotenant.daemon import lock
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(lock.is_held(Path(sys.argv[1])))
"""

    def is_held() -> str:
        done = run_python(source, plain_env, folder)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert is_held() == "False"
    held = lock.acquire(folder)
    assert held is not None and is_held() == "True"
    lock.release(folder, held)
    assert is_held() == "False"
    # A file that a killed daemon has left.
    os.close(lock.acquire(folder) or 0)
    assert lock.file_for(folder).exists() and is_held() == "False"


@NEEDS_ROOT
def test_a_strangers_segment_does_not_lie_in_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used where somebody names it, but not where one's own is looked for, and no program is taken from it."""
    from cotenant.daemon.attachment import Attachment

    segment.choose_policy(folder, "/home/stranger/policy.py")
    attachment = Attachment(folder)
    assert attachment.policy == "/home/stranger/policy.py"
    attachment.close()
    for part in (folder, folder / "header", folder / "slots"):
        os.chown(part, STRANGER, STRANGER)
    attachment = Attachment(folder)
    assert attachment.policy == ""
    attachment.policy = "guard"
    assert attachment.policy == "guard"
    attachment.close()
    assert segment.read(folder).tenants == ()
    monkeypatch.setattr(paths, "own_default", lambda: folder)
    for use in (segment.read, lambda path: segment.ask(path, 1, {"weight": 1000})):
        with pytest.raises(segment.BadSegment, match="belongs to another user"):
            use(folder)


@pytest.mark.parametrize("what", ["folder", "header", "slots"])
def test_no_link_is_followed(folder: Path, what: str) -> None:
    elsewhere = folder.with_name("elsewhere")
    linked = folder if what == "folder" else folder / what
    linked.rename(elsewhere)
    linked.symlink_to(elsewhere)
    with pytest.raises(segment.BadSegment):
        segment.read(folder)
    if what != "slots":
        with pytest.raises(segment.BadSegment):
            segment.choose_policy(folder, "fair")
        with pytest.raises(segment.BadSegment):
            segment.ensure(folder)


def test_names_that_are_no_slots_hide_none(folder: Path) -> None:
    for number in range(1500):
        (folder / "slots" / f"junk.{number}").touch()
    put_slot(folder, 200, pid=4711)
    assert [tenant.pid for tenant in segment.read(folder).tenants] == [4711]


def test_of_several_that_claim_a_process_the_true_one_is_asked(folder: Path) -> None:
    from cotenant.segment.requests import is_process

    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    for index, begun in ((1, started + 5), (2, started), (3, 0)):
        slot = put_slot(folder, index, pid=os.getpid())
        slot.started = begun
        sign(slot)
        (folder / "slots" / str(index)).write_bytes(bytes(slot).ljust(segment.PLACE, b"\0"))
    assert segment.ask(folder, os.getpid(), {"weight": 2000})
    asked = [
        found.slot.asked.weight
        for found in FolderSegment(folder).slot_files(FolderSegment(folder).read_header())
    ]
    assert asked == [0, 2001, 0]
    true = FolderSegment(folder).slot_file(2)
    # Another user's slot may say the same: whose it is, its file says.
    assert true and is_process(true) and not is_process(replace(true, uid=STRANGER))
    (folder / "slots" / "2").unlink()
    with pytest.raises(segment.BadSegment, match="several tenants claim"):
        segment.ask(folder, os.getpid(), {"weight": 2000})
    assert not any(is_process(found) for found in segment.read(folder).tenants)


def test_a_segment_of_larger_pages_is_named(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    written = Written()
    written.header.slot_bytes = 65536
    written.to(file)
    with FolderSegment(folder).writable_header() as header:
        header.slot_bytes = 65536
    for path in (file, folder):
        for use in (segment.read, segment.ensure):
            with pytest.raises(segment.BadSegment, match=r"a slot has 65536 bytes, here it has \d+"):
                use(path)


def test_who_has_no_name_here_is_known_by_a_number() -> None:
    assert (segment_command.user_name(0), segment_command.user_name(4_000_000_001)) == ("root", "4000000001")
    assert (segment_command.group_name(0), segment_command.group_name(4_000_000_001)) == (
        "root",
        "4000000001",
    )
