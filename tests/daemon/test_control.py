"""The control socket: a user steers own tenants, an administrator all, by what the kernel says of who has connected;
and nothing that is sent to it harms the daemon."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant import segment
from cotenant.daemon import control, files, lock, report
from cotenant.daemon.control import Control, Desk, Peer
from cotenant.errors import Problem
from cotenant.segment.folder import create_folder
from tests.segments import UUID, Written, sign
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run, RunPython

ALICE, BOB, CAROL, ADMINS = 54321, 54322, 54323, 54399
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
OWN, HERS = 3, 7  # slots


@pytest.fixture
def folder(native: Path) -> Iterator[Path]:
    """A segment of several users, with a tenant of this user and, where that can be, one of Alice's."""
    with tempfile.TemporaryDirectory(prefix="cotenant-test-") as beside:
        Path(beside).chmod(0o755)
        path = Path(beside) / "segment"
        create_folder(path, None, [], [UUID])
        for index, pid, uid in ((OWN, 4711, os.geteuid()), (HERS, 4712, ALICE)):
            slot = Written().tenant(index, pid)
            sign(slot)
            file = path / "slots" / str(index)
            file.write_bytes(bytes(slot).ljust(segment.PLACE, b"\0"))
            file.chmod(0o644)
            if os.geteuid() == 0:
                os.chown(file, uid, uid)
        yield path


@pytest.fixture
def served(folder: Path) -> Iterator[Path]:
    made = Control(folder, ADMINS)
    made.start()
    yield folder
    made.end()
    assert not control.file_for(folder).exists()


def peer(uid: int, *groups: int) -> Peer:
    return Peer(1, uid, frozenset(groups))


def asking(slot: int, **wanted: int) -> bytes:
    pid = {OWN: 4711, HERS: 4712}[slot]
    return json.dumps({"do": "ask", "slot": slot, "pid": pid, "started": 0, "wanted": wanted}).encode()


def asked(folder: Path, slot: int) -> tuple[str, ...]:
    pid = {OWN: 4711, HERS: 4712}[slot]
    (found,) = [one for one in segment.read(folder).tenants if one.pid == pid]
    return found.asked


@NEEDS_ROOT
@pytest.mark.parametrize(
    ("who", "allowed"),
    [
        (peer(ALICE), {HERS}),
        (peer(BOB), set()),
        (peer(BOB, ALICE), set()),  # a group of that number is nothing
        (peer(CAROL, 7, ADMINS), {OWN, HERS}),
        (peer(0), {OWN, HERS}),
    ],
)
def test_who_may_steer_which_tenant(folder: Path, who: Peer, allowed: set[int]) -> None:
    desk = Desk(folder, ADMINS)
    for slot in (OWN, HERS):
        said = json.loads(desk.answer(asking(slot, weight=2000), who))
        assert ("error" not in said) == (slot in allowed), said
        assert asked(folder, slot) == (("weight",) if slot in allowed else ())


def test_who_is_refused_is_told_whom_to_ask(folder: Path) -> None:
    said = json.loads(Desk(folder, ADMINS).answer(asking(OWN, weight=2000), peer(BOB)))
    assert said == {"error": f"that tenant belongs to user {os.geteuid()}", "hint": "ask an administrator"}


def test_without_a_group_of_administrators_nobody_is_one(folder: Path) -> None:
    said = json.loads(Desk(folder).answer(b'{"do": "policy", "name": "fair"}', peer(BOB, 0, ADMINS)))
    assert "no administrator" in said["error"]
    assert segment.read(folder).policy == ""


def test_an_administrator_chooses_among_the_installed_policies_and_only_root_names_code(
    folder: Path, tmp_path: Path
) -> None:
    desk = Desk(folder, ADMINS)
    carol, root = peer(CAROL, ADMINS), peer(os.geteuid())
    code = json.dumps({"do": "policy", "name": str(tmp_path / "mine.py")}).encode()
    assert json.loads(desk.answer(b'{"do": "policy", "name": "fair"}', carol)) == {}
    assert segment.read(folder).policy == "fair"
    assert "only root" in json.loads(desk.answer(code, carol))["error"]
    assert "unknown policy" in json.loads(desk.answer(b'{"do": "policy", "name": "fare"}', carol))["error"]
    assert segment.read(folder).policy == "fair"
    assert json.loads(desk.answer(code, root)) == {}
    assert segment.read(folder).policy == str(tmp_path / "mine.py")


def test_a_request_for_a_tenant_that_has_ended_reaches_no_other(folder: Path) -> None:
    """Its slot may be another's by now."""
    message = json.loads(asking(OWN, weight=2000)) | {"started": 5}
    said = json.loads(Desk(folder).answer(json.dumps(message).encode(), peer(0)))
    assert said["error"] == "that tenant has ended" and asked(folder, OWN) == ()


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("tenant_class", 2**32 - 2),
        ("weight", 2**32 - 2),
        ("slowdown", 2**32 - 2),
        ("floor", 2**32 - 2),
        ("time_slice_us", 2**32 - 2),
        ("memory", 2**64 - 2),
        ("sms", 1000),
        ("pause", 1),
    ],
)
def test_a_request_takes_what_its_word_in_the_slot_can_hold(name: str, most: int) -> None:
    """The largest number of a word means that nothing is asked for."""
    for fits in (0, 1, most):
        assert control.requests({name: fits}) == {name: fits}
    for wrong in (most + 1, -1, True, 1.0, "1", None):
        with pytest.raises(control.Refused, match="out of range"):
            control.requests({name: wrong})


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["ask", "policy", "hello", "weight", "pause", "fair", "/x.py", "a\0.py"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
likely = st.fixed_dictionaries(
    {"do": st.sampled_from(["ask", "policy", "hello"]) | anything},
    optional={name: anything | st.integers(0, 300) for name in ("slot", "pid", "started", "name", "x")}
    | {"wanted": st.dictionaries(st.sampled_from([*control.WANTED, "x"]), anything, max_size=4) | anything},
)
messages = (
    st.binary(max_size=200)
    | likely.map(lambda one: json.dumps(one).encode())
    | anything.map(lambda one: json.dumps(one).encode())
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(message=messages, uid=st.sampled_from([0, ALICE, BOB]))
def test_whatever_a_message_holds_it_gets_an_answer(folder: Path, message: bytes, uid: int) -> None:
    said = Desk(folder, ADMINS).answer(message, peer(uid, ADMINS))
    assert isinstance(json.loads(said), dict) and len(said) <= control.MOST_BYTES


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(sent=st.lists(st.binary(min_size=1, max_size=9000) | messages.filter(bool), max_size=4))
def test_whatever_is_sent_the_next_one_is_served(served: Path, sent: list[bytes]) -> None:
    with (
        control.in_its_folder(control.file_for(served)) as name,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one,
    ):
        one.connect(name)
        for message in sent:
            one.send(message)
    assert control.send(served, {"do": "hello"})["pid"] == os.getpid()


def test_peers_that_say_nothing_keep_nobody_out(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PATIENCE_SECONDS", 0.2)
    with control.in_its_folder(control.file_for(served)) as name:
        silent = []
        for _ in range(control.MOST_PEERS + 5):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(name)
            silent.append(one)
    monkeypatch.undo()

    def is_served() -> bool:
        try:
            return "version" in control.send(served, {"do": "hello"})
        except Problem:
            return False

    wait_for(is_served)
    for one in silent:
        one.close()


@pytest.mark.parametrize(
    ("uid", "most"), [(ALICE, control.MOST_PEERS_OF_ONE), (os.geteuid(), control.MOST_PEERS)]
)
def test_one_user_takes_only_a_part_of_the_connections(
    folder: Path, monkeypatch: pytest.MonkeyPatch, uid: int, most: int
) -> None:
    made = Control(folder, ADMINS)
    monkeypatch.setattr(Peer, "of", staticmethod(lambda connection: peer(uid)))
    with contextlib.ExitStack() as stack, control.in_its_folder(made.file) as name:
        waiting = stack.enter_context(selectors.DefaultSelector())
        for _ in range(most + 2):
            one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            one.connect(name)
            made.accept(waiting)
        assert len(made.deadlines) == most
        # Another user has a place all the same, and one that leaves makes room.
        if most < control.MOST_PEERS:
            monkeypatch.setattr(Peer, "of", staticmethod(lambda connection: peer(BOB)))
            one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            one.connect(name)
            made.accept(waiting)
            assert len(made.deadlines) == most + 1
        made.close_all(waiting)
        assert not made.deadlines
    made.end()


def test_a_strangers_socket_is_not_believed(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "trusted", lambda path: {ALICE})
    with pytest.raises(Problem, match="belongs to another user"):
        control.send(served, {"do": "hello"})


def test_who_goes_on_talking_is_never_late(folder: Path) -> None:
    made = Control(folder, ADMINS)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.closing(ours), contextlib.closing(theirs), selectors.DefaultSelector() as waiting:
        made.deadlines[ours] = (0.0, ALICE)
        waiting.register(ours, selectors.EVENT_READ)
        theirs.send(json.dumps({"do": "hello"}).encode())
        made.serve(waiting, ours, Peer(1, ALICE, frozenset()))
        assert "version" in json.loads(theirs.recv(control.MOST_BYTES))
        assert made.close_the_late(waiting) and made.deadlines.keys() == {ours}
    made.end()


def test_modes(served: Path, path: Path) -> None:
    """Whoever may come into the folder may ask; a user's own socket is for nobody else."""
    assert stat.S_IMODE(control.file_for(served).lstat().st_mode) == 0o666
    own = Control(path)
    assert stat.S_IMODE(control.file_for(path).lstat().st_mode) == 0o600
    own.start()
    own.end()


def test_a_path_that_is_too_long_for_a_socket_serves_too(native: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    segment.ensure(deep / "segment")
    made = Control(deep / "segment")
    made.start()
    assert control.send(deep / "segment", {"do": "hello"})["segment"] == segment.VERSION
    made.end()


AS_ANOTHER = """
import os, sys
from pathlib import Path
from cotenant import segment, cli
import cotenant.daemon.control, cotenant.commands.ctl, cotenant.tenants.jobs, cotenant.policies.registry
from cotenant.policies import registry
segment.wire_library(); [registry.find(name) for name in registry.names()]  # where that user may not come in
uid, groups = int(sys.argv[1]), [int(word) for word in sys.argv[2].split(',') if word]
os.setgroups(groups); os.setgid(uid); os.setuid(uid)
sys.exit(cli.main(sys.argv[3:]))
"""


@NEEDS_ROOT
def test_by_the_kernels_word_an_administrator_who_is_not_root_steers_all(
    served: Path, plain_env: dict[str, str], run_python: RunPython
) -> None:
    def ctl(uid: int, groups: str, *words: str) -> subprocess.CompletedProcess[str]:
        return run_python(AS_ANOTHER, plain_env, str(uid), groups, "ctl", "--segment", str(served), *words)

    done = ctl(BOB, "", "--policy", "fair")
    assert done.returncode == 1 and f"user {BOB} is no administrator" in done.stderr
    done = ctl(CAROL, str(ADMINS), "--policy", "fair")
    assert done.returncode == 0, done.stderr
    assert segment.read(served).policy == "fair"
    # Nobody is there to take the request: it is in the slot.
    done = ctl(BOB, "", "4712", "--weight", "2")
    assert f"belongs to user {ALICE}" in done.stderr and asked(served, HERS) == ()
    done = ctl(CAROL, str(ADMINS), "4712", "--weight", "2")
    assert "does not answer" in done.stderr and asked(served, HERS) == ("weight",)


def daemon_of(path: Path, env: dict[str, str], *options: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "cotenant",
        "daemon",
        "--segment",
        str(path),
        "--linger",
        "inf",
        *options,
    ]
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE)


def ticking(path: Path) -> int:
    shown: Any = report.read(path)
    return shown.pid if shown else 0


def test_a_new_daemon_takes_the_tenants_over(path: Path, plain_env: dict[str, str], cotenant: Run) -> None:
    first = daemon_of(path, plain_env)
    try:
        wait_for(lambda: ticking(path) == first.pid and control.is_there(path))
        second = daemon_of(path, plain_env, "--replace", "--policy", "fair")
        try:
            wait_for(lambda: ticking(path) == second.pid)
            assert first.wait(30) == 0
            assert lock.is_held(path) and segment.read(path).policy == "fair"
            assert {one.pid for one in segment.read(path).tenants} == {100, 200}
            assert control.send(path, {"do": "hello"})["pid"] == second.pid
        finally:
            second.terminate()
            second.communicate(timeout=30)
    finally:
        first.kill()
        first.communicate()
    assert not control.file_for(path).exists()


def test_a_daemon_that_was_killed_leaves_no_socket_in_the_way(path: Path, plain_env: dict[str, str]) -> None:
    for _ in range(2):
        one = daemon_of(path, plain_env)
        try:
            wait_for(lambda pid=one.pid: ticking(path) == pid and control.is_there(path))  # type: ignore[misc]
            assert control.send(path, {"do": "hello"})["pid"] == one.pid
        finally:
            one.kill()
            one.communicate()
    with pytest.raises(Problem, match="does not answer"):
        control.send(path, {"do": "hello"})


def test_a_group_that_is_none_is_refused(cotenant: Run, path: Path, plain_env: dict[str, str]) -> None:
    done = cotenant("daemon", "--segment", path, "--admins", "no-such-group", env=plain_env)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: there is no group 'no-such-group'")


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"do": "policy", "name": 7}, "a policy's name is a text"),
        ({"do": "policy", "name": "/" + "x" * 2000 + ".py"}, "characters at most"),
        ({"do": "policy", "name": "gaurd"}, "unknown policy 'gaurd'"),
        ({"do": "sing"}, "unknown message"),
        ({"do": "ask", "slot": OWN, "pid": 4711, "started": 0, "wanted": {"colour": 1}}, "a request has "),
        ({"do": "ask", "slot": OWN, "pid": 4711, "started": 0, "wanted": []}, "a request has "),
        ({"do": "ask", "slot": OWN, "pid": 4711, "started": 9, "wanted": {}}, "that tenant has ended"),
        ({"do": "ask", "slot": OWN + 1, "pid": 4711, "started": 0, "wanted": {}}, "that tenant has ended"),
        ({"do": "ask", "slot": True, "pid": 1, "started": 0, "wanted": {}}, "a number is missing"),
        ({"do": "ask", "slot": -1, "pid": 1, "started": 0, "wanted": {}}, "a number is missing"),
    ],
)
def test_the_desk_says_why_it_does_not_obey(folder: Path, message: dict[str, Any], error: str) -> None:
    own = Peer(os.getpid(), os.geteuid(), frozenset())
    answer = json.loads(Desk(folder).answer(json.dumps(message).encode(), own))
    assert error in answer["error"]


def test_a_users_own_segment_is_not_the_desks(tmp_path: Path) -> None:
    path = Written().to(tmp_path / "segment")
    message = {"do": "ask", "slot": 0, "pid": 1, "started": 0, "wanted": {}}
    peer = Peer(os.getpid(), os.geteuid(), frozenset())
    assert "one user's" in json.loads(Desk(path).answer(json.dumps(message).encode(), peer))["error"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can join a group")
def test_a_peers_groups_are_all_of_them() -> None:
    source = (
        "import os, socket\n"
        "from cotenant.daemon.control import Peer\n"
        "os.setgroups([4321, 1234])\n"
        "one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "peer = Peer.of(one)\n"
        "assert (peer.pid, peer.uid) == (os.getpid(), os.getuid())\n"
        "assert peer.groups == {os.getegid(), 1234, 4321}, peer.groups\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60)
