"""Settings: from files, variables and flags, in this order; what holds and where it comes from can be read."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from cotenant import segment
from cotenant.cli import cli
from cotenant.config import files, live, page, settings, standing
from cotenant.config.live import DEFAULT, FLAG, LIVE, Holds, LiveSettings
from cotenant.daemon import lock, loop
from cotenant.daemon.attachment import Attachment
from cotenant.errors import Problem
from cotenant.policies import patience
from cotenant.tenants import memory_knobs
from tests.compiling import TREE
from tests.segments import UUID, Written

if TYPE_CHECKING:
    from tests.conftest import Run

GiB = 1 << 30


class Files:
    """A user's and a machine's file, and the environment that names them."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.user, self.machine = folder / "user.toml", folder / "machine.toml"
        named = {files.USER_VARIABLE: str(self.user), files.MACHINE_VARIABLE: str(self.machine)}
        self.env = env | named

    def says(self, user: str = "", machine: str = "") -> dict[str, str]:
        self.user.write_text(user)
        self.machine.write_text(machine)
        return self.env


@pytest.fixture
def written(tmp_path: Path, plain_env: dict[str, str]) -> Files:
    return Files(tmp_path, plain_env)


def test_the_table_of_the_page_is_that_of_the_code() -> None:
    text = (TREE / "docs" / "configuration.md").read_text()
    assert text.endswith(page.table() + "\n"), "cotenant config table prints it"


@pytest.mark.parametrize("setting", settings.SETTINGS, ids=lambda setting: setting.key)
def test_a_setting_is_an_option_of_its_command(setting: settings.Setting) -> None:
    command = cli.get_command(click.Context(cli), setting.table or "status")
    assert command is not None
    options = {one.name: one for one in command.params if isinstance(one, click.Option)}
    option = options[setting.argument]
    assert option.envvar == setting.environment_variable
    assert set(setting.flag.split("/")) <= {*option.opts, *option.secondary_opts}
    if setting.default is not None:
        assert option.get_default(click.Context(command)) == setting.default


@pytest.mark.parametrize("table", ["run", "daemon", "metrics"])
def test_a_command_has_its_own_settings_and_those_of_all(table: str) -> None:
    found = settings.of_command(table)
    assert {one.table for one in found.values()} <= {"", table}
    assert list(found.values()) == [one for one in settings.SETTINGS if one.table in ("", table)]


def class_of(cotenant: Run, env: dict[str, str], *options: str) -> str:
    done = cotenant("run", "--dry-run", *options, "true", env=env)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return lines["COTENANT_CLASS"]


def test_a_flag_counts_before_a_variable_before_the_users_before_the_machines_file(
    cotenant: Run, tmp_path: Path, softgpu_env: dict[str, str]
) -> None:
    written = Files(tmp_path, softgpu_env)
    machine = '[run]\nclass = "opportunistic"'
    assert class_of(cotenant, written.says()) == "standard"
    assert class_of(cotenant, written.says("", machine)) == "opportunistic"
    user = '[run]\nclass = "production"'
    assert class_of(cotenant, written.says(user, machine)) == "production"
    said = written.says(user, machine) | {"COTENANT_CLASS": "opportunistic"}
    assert class_of(cotenant, said) == "opportunistic"
    assert class_of(cotenant, said, "--class", "standard") == "standard"


def test_a_promise_in_a_file_counts_only_for_the_classes_that_have_it(
    cotenant: Run, tmp_path: Path, softgpu_env: dict[str, str]
) -> None:
    env = Files(tmp_path, softgpu_env).says('[run]\nslowdown = "5%"\nfloor = 0.1')
    for tenant_class, kept in (("production", "COTENANT_SLOWDOWN=5%"), ("standard", "COTENANT_FLOOR=10%")):
        done = cotenant("run", "--dry-run", "--class", tenant_class, "true", env=env)
        found = [line for line in done.stdout.splitlines() if "SLOWDOWN" in line or "FLOOR" in line]
        assert (done.returncode, found) == (0, [kept]), done.stderr


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ('[run]\nclas = "standard"', "unknown key run.clas", "did you mean 'class'?"),
        ("[rum]\nweight = 1", "unknown table [rum]", "did you mean 'run'?"),
        ("run = 5", "unknown key run", "known: "),
        ("weight = 1", "unknown key weight", "weight is a key of [run]"),
        ('[run]\nclass = "urgent"', "run.class: unknown class 'urgent'", "known: opportunistic"),
        ('[run]\nmemory = "20"', "run.memory: no memory limit: '20'", "did you forget the unit?"),
        ("[run]\nslowdown = 5", "run.slowdown: no slowdown: '5'", "did you mean 5%?"),
        ('[run]\nquiet = "yes"', "run.quiet: 'yes' is no switch", "write true or false"),
        ("[run]\nweight = true", "run.weight: a switch is no value for it", "NUMBER"),
        ("[run]\nweight = [1]", "run.weight: a list is no value for it", "NUMBER"),
        ("[daemon]\nlinger = -1", "daemon.linger: no number of seconds to linger: '-1'", "from 0 up"),
        ("[daemon]\nlinger = nan", "daemon.linger: no number of seconds to linger: 'nan'", "from 0 up"),
        ('[daemon]\npolicy = "gard"', "daemon.policy: unknown policy 'gard'", "did you mean 'guard'?"),
        ('segment = "a\\u0000b"', "segment: a NUL character in it", "remove \\u0000"),
        ("[run\n", "is no TOML: ", "a line is a [table]"),
        pytest.param(f"[run]\nweight = {'9' * 5000}", "is no TOML: ", "a line is a [table]", id="digits"),
        pytest.param(
            f"[run]\nweight = 0x{'f' * 5000}", "weight: a number of over 64 bits", "NUMBER", id="hexadecimal"
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_file_its_key_and_the_remedy(
    cotenant: Run, written: Files, text: str, error: str, hint: str
) -> None:
    done = cotenant("config", "check", env=written.says(text))
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith(f"error: {written.user}") and error in first
    assert second.startswith("hint: ") and hint in second


def test_a_wrong_file_is_not_used_and_keeps_nobody_from_working(cotenant: Run, written: Files) -> None:
    env = written.says('[status]\noutput = "csv"\nzzz = 1', '[status]\noutput = "json"')
    Written().to(Path(env["COTENANT_SEGMENT"]))
    done = cotenant("status", env=env)
    assert done.returncode == 0 and json.loads(done.stdout)["tenants"] == []
    first = done.stderr.splitlines()[0]
    assert f"{written.user}: unknown key status.zzz: this file is not used" in first and "hint: " in first


def test_a_file_that_others_can_write_is_not_used(written: Files) -> None:
    written.says("[run]\nweight = 2")
    written.user.chmod(0o666)
    with pytest.raises(Problem, match="can be written by everybody"):
        files.read(files.File("user", written.user))


def test_a_file_of_another_editor_is_read_and_a_deep_one_is_refused(written: Files) -> None:
    written.says("\ufeff[run]\r\nweight = 2\r\n")
    assert files.read(files.File("user", written.user)) == [("run.weight", "2")]
    written.says("a = " + "[" * 5000)
    with pytest.raises(Problem, match="is no TOML"):
        files.read(files.File("user", written.user))


def test_a_pipe_is_checked_like_a_file(cotenant: Run, plain_env: dict[str, str], tmp_path: Path) -> None:
    done = cotenant("config", "check", "/dev/stdin", env=plain_env, input="[run]\nweight = 2\n")
    assert (done.returncode, done.stderr) == (0, "/dev/stdin: 1 setting, all right\n")
    done = cotenant("config", "check", "/dev/stdin", env=plain_env, input="[run]\nwieght = 2\n")
    assert done.returncode == 2 and "did you mean 'weight'?" in done.stderr
    for wrong in (tmp_path, tmp_path / "none"):
        assert f"there is no file {wrong}" in cotenant("config", "check", wrong, env=plain_env).stderr


def test_the_default_segment_is_shown_by_its_own_name() -> None:
    (one,) = [one for one in standing.of_commands({}, files.Settings()) if one.setting.key == "segment"]
    assert (one.value, one.holds.source) == (str(segment.path_for({})), "default")


def shown(done_stdout: str) -> dict[str, tuple[str, str]]:
    return {one["key"]: (one["value"], one["source"]) for one in json.loads(done_stdout)["settings"]}


def test_what_is_set_can_be_read_with_where_it_comes_from(cotenant: Run, written: Files) -> None:
    env = written.says('[run]\nweight = 3\n[daemon]\nheadroom = "2G"', '[daemon]\ncapacity = "70G"')
    segment_file = Written()
    segment_file.gpu(0, UUID)
    segment_file.header.memory_knobs.stay_ms = 500
    segment_file.to(Path(env["COTENANT_SEGMENT"]))
    done = cotenant("config", "show", "-o", "json", env=env | {"COTENANT_DAEMON_LINGER": "3"})
    assert done.returncode == 0, done.stderr
    found = shown(done.stdout)
    assert found["run.weight"] == ("3", "user file")
    assert found["run.class"] == ("standard", "default")
    assert found["daemon.headroom"] == ("2G", "user file")
    assert found["daemon.capacity"] == ("70G", "machine file")
    assert found["daemon.linger"] == ("3", "environment")
    assert found["daemon.stay"] == ("500ms", "ctl")
    assert found.keys() == settings.BY_KEY.keys()
    table = cotenant("ctl", env=env)
    assert (table.returncode, table.stderr) == (0, "")
    rows = {line.split()[0]: line for line in table.stdout.splitlines()}
    assert "set live by ctl" in rows["daemon.stay"] and str(written.machine) in rows["daemon.capacity"]


def test_a_segment_that_names_no_policy_has_the_default(tmp_path: Path) -> None:
    written, found = Written(), files.load({})
    for named, shown in (("", ("guard", DEFAULT)), ("fair", ("fair", LIVE))):
        written.header.policy = named.encode()
        each = standing.of_segment(written.to(tmp_path / "segment"), {}, found)
        (policy,) = (one for one in each if one.setting.key == "daemon.policy")
        assert (policy.value, policy.holds.source) == shown


def test_what_differs_from_gpu_to_gpu_is_shown_for_each(tmp_path: Path) -> None:
    """The daemon has set both, and `ctl` one of them since."""
    written = Written()
    for number, gib in enumerate((10, 20)):
        written.gpu(number, bytes([number] * 16))
        written.header.gpus[number].capacity = gib << 30
    seen = segment.read(written.to(tmp_path / "segment"))
    text, holds = standing.knob("capacity", seen, Holds(10 << 30, "user file"), 10 << 30)
    assert (text, holds.source) == ("10G, 20G", LIVE)


def test_a_wrong_file_is_shown_too(cotenant: Run, written: Files) -> None:
    done = cotenant("config", "show", "-o", "json", env=written.says("zzz = 1"))
    assert done.returncode == 1 and "unknown key zzz" in done.stderr
    (user,) = (file for file in json.loads(done.stdout)["files"] if file["which"] == "user")
    assert user["is_there"] and "unknown key zzz" in user["problem"]


class Daemons:
    """One daemon after the other, as far as settings go; files and the segment stay."""

    def __init__(self, written: Files, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written = written
        self.path = Path(written.env["COTENANT_SEGMENT"])
        for name in (files.USER_VARIABLE, files.MACHINE_VARIABLE):
            monkeypatch.setenv(name, written.env[name])
        made = Written()
        made.gpu(0, UUID)
        made.to(self.path)

    def starts(self, **given: Holds) -> Callable[[], LiveSettings]:
        found = LiveSettings(self.path, given, "guard")

        def looks() -> LiveSettings:
            found.next_look = 0.0
            found.follow(segment.Header.from_buffer_copy(self.path.read_bytes()))
            return found

        return looks

    def knobs(self) -> dict[str, tuple[int, ...]]:
        return dict(segment.read(self.path).memory_knobs)

    def ctl_sets(self, **knobs: int) -> None:
        with segment.open(self.path).writable_header() as header:
            for name, value in knobs.items():
                setattr(header.memory_knobs, name, value)
            segment.seal(header)

    def gpu_comes(self, number: int) -> None:
        with segment.open(self.path).writable_header() as header:
            header.gpus[number].known = segment.GPU_VALID
            segment.seal(header)


@pytest.fixture
def daemons(written: Files, monkeypatch: pytest.MonkeyPatch) -> Daemons:
    return Daemons(written, monkeypatch)


def test_the_daemon_follows_a_file_that_changes(daemons: Daemons) -> None:
    daemons.written.says('[daemon]\npolicy = "strict"', '[daemon]\ncapacity = "70G"\nheadroom = "1G"')
    looks = daemons.starts()
    assert looks().wanted["policy"] == Holds("strict", "user file", str(daemons.written.user))
    assert daemons.knobs() | {"capacity": (70 * GiB,), "headroom": (1 + GiB,)} == daemons.knobs()
    daemons.written.says("", '[daemon]\ncapacity = "60G"')
    assert looks().wanted["policy"].value == "guard"
    assert daemons.knobs() | {"capacity": (60 * GiB,), "headroom": (0,)} == daemons.knobs()


def test_to_the_daemon_too_the_users_file_counts_before_the_machines(daemons: Daemons) -> None:
    daemons.written.says('[daemon]\nheadroom = "2G"', '[daemon]\nheadroom = "1G"\nstay = "100ms"')
    daemons.starts()()
    assert daemons.knobs() | {"headroom": (1 + 2 * GiB,), "stay": (100,)} == daemons.knobs()


def test_while_a_file_is_wrong_the_last_good_settings_hold(daemons: Daemons) -> None:
    daemons.written.says("", '[daemon]\nheadroom = "1G"')
    looks = daemons.starts()
    looks()
    daemons.written.says("", '[daemon]\nheadrom = "3G"')
    assert "unknown key daemon.headrom" in looks().problem
    assert daemons.knobs()["headroom"] == (1 + GiB,)
    held = lock.acquire(daemons.path)
    assert held is not None
    try:
        assert "did you mean 'headroom'?" in live.problem_of_daemon(daemons.path)
    finally:
        lock.release(daemons.path, held)
    daemons.written.says("", '[daemon]\nheadroom = "3G"')
    assert looks().problem == "" and daemons.knobs()["headroom"] == (1 + 3 * GiB,)


@pytest.mark.parametrize(
    ("statement", "told"),
    [("while True: pass", "it did not answer"), ("raise KeyboardInterrupt", "KeyboardInterrupt()")],
)
def test_a_policy_that_does_not_load_does_not_stop_the_daemon(
    daemons: Daemons, tmp_path: Path, statement: str, told: str
) -> None:
    policy = tmp_path / "policy.py"
    policy.write_text(statement)
    daemons.written.says("", '[daemon]\npolicy = "strict"')
    attachment = Attachment(daemons.path)
    found = LiveSettings(daemons.path, {}, "guard")
    one = loop.Daemon(attachment, "guard", 10, settings=found)
    one.follow_settings()
    one.patience_seconds = 0.05
    daemons.written.says("", f'[daemon]\npolicy = "{policy}"')
    found.next_look = 0.0
    before = signal.signal(signal.SIGALRM, patience.end_the_wait)
    try:
        one.follow_settings()
    finally:
        signal.signal(signal.SIGALRM, before)
        attachment.close()
    assert "its policy cannot be loaded" in found.problem and told in found.problem
    assert one.default_policy == "strict", "the last good settings hold"


def test_what_ctl_has_set_stays_until_it_says_default(daemons: Daemons) -> None:
    daemons.written.says("", '[daemon]\nheadroom = "1G"')
    looks = daemons.starts()
    looks()
    daemons.ctl_sets(headroom=1 + 5 * GiB)
    daemons.written.says("", '[daemon]\nheadroom = "2G"')
    looks()
    assert daemons.knobs()["headroom"] == (1 + 5 * GiB,)
    daemons.ctl_sets(headroom=0)
    looks()
    assert daemons.knobs()["headroom"] == (1 + 2 * GiB,)


def test_the_capacity_that_ctl_has_set_stays_when_another_gpu_comes(daemons: Daemons) -> None:
    looks = daemons.starts(capacity=Holds(20 * GiB, FLAG))
    looks()
    memory_knobs.change(daemons.path, memory_knobs.Change(capacity=40 * GiB))
    daemons.gpu_comes(1)
    looks()
    assert daemons.knobs()["capacity"][0] == 40 * GiB and len(daemons.knobs()["capacity"]) == 2


def test_the_next_daemon_knows_what_the_last_one_has_set(daemons: Daemons) -> None:
    daemons.written.says("", '[daemon]\nheadroom = "1G"')
    daemons.starts()()
    daemons.ctl_sets(stay_ms=700)
    daemons.written.says("", '[daemon]\nheadroom = "2G"\nstay = "100ms"')
    daemons.starts()()
    assert daemons.knobs() | {"headroom": (1 + 2 * GiB,), "stay": (700,)} == daemons.knobs()


def test_a_flag_of_the_daemon_counts_before_the_files(daemons: Daemons) -> None:
    daemons.written.says("", '[daemon]\nheadroom = "1G"')
    found = daemons.starts(headroom=Holds(1 + 4 * GiB, FLAG))()
    assert daemons.knobs()["headroom"] == (1 + 4 * GiB,)
    assert (found.wanted["headroom"].source, found.wanted["stay"].source) == (FLAG, DEFAULT)


def test_what_a_daemon_sets_later_and_leaves_is_known_to_the_next(daemons: Daemons) -> None:
    """The capacity of a GPU that comes only then. A daemon that has set nothing leaves no file."""
    Written().to(daemons.path)
    daemons.written.says("", '[daemon]\ncapacity = "70G"')
    looks = daemons.starts()
    looks()
    made = Written()
    made.gpu(0, UUID)
    made.to(daemons.path)
    looks().end()
    assert live.read(daemons.path).applied == {"capacity": 70 * GiB}
    daemons.written.says("", '[daemon]\ncapacity = "60G"')
    daemons.starts()()
    assert daemons.knobs()["capacity"] == (60 * GiB,)
    daemons.written.says("", "")
    looks = daemons.starts()
    looks().end()
    assert daemons.knobs()["capacity"] == (0,) and not live.file_for(daemons.path).exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b'{"problem": 1, "applied": 2}',
        b"\xff",
        b'{"problem": "", "applied": {"stay": Infinity}, "settings": {}}',
        b'{"problem": "", "applied": {}, "settings": {"stay": {"value": Infinity, "source": "", "file": ""}}}',
    ],
)
def test_a_damaged_record_of_settings_is_none(daemons: Daemons, content: bytes) -> None:
    live.file_for(daemons.path).write_bytes(content)
    assert live.read(daemons.path) == live.NOTHING
    assert LIVE not in {holds.source for holds in daemons.starts()().wanted.values()}
