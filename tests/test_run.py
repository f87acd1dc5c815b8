"""`cotenant run` becomes the command; nothing of the command's world changes but for what makes it a tenant."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.errors import Problem
from cotenant.launch import driver, environment, execute, mounts, native_files, python_path

if TYPE_CHECKING:
    from tests.conftest import Run, RunPython

SETTINGS = {
    "COTENANT_LAST_RUN",
    "COTENANT_SHARE_WHY",
    "COTENANT_DRIVER",
    "COTENANT_SEGMENT",
    "COTENANT_CLASS",
    "COTENANT_RUN_ID",
    "COTENANT_NAME",
    "LD_PRELOAD",
}
Obstacle = Callable[[dict[str, str], Path], dict[str, str]]
COTENANT = [sys.executable, "-m", "cotenant"]


@pytest.fixture
def stand_ins(native: Path, tmp_path: Path) -> Path:
    """A native folder whose interposer and driver are loadable libraries that do nothing."""
    folder = tmp_path / "stand-ins"
    for part in ("shim", "driver", "tools"):
        (folder / part).mkdir(parents=True)
    library = (native / "libcotenant_wire.so").read_bytes()
    for path in ("libcotenant_wire.so", "shim/libcuda.so.1", "driver/libcuda.so.1", "tools/other.so"):
        (folder / path).write_bytes(library)
    # As with the software GPU: the segment need not be in memory.
    (folder / "driver" / "softgpud").touch()
    return folder


@pytest.fixture
def env(plain_env: dict[str, str], stand_ins: Path) -> dict[str, str]:
    plain_env.pop("LD_PRELOAD", None)
    return plain_env | {"COTENANT_NATIVE": str(stand_ins), "LD_LIBRARY_PATH": str(stand_ins / "driver")}


def test_a_command_that_is_no_tenant_has_nothing_of_an_outer_run() -> None:
    outer = {
        "COTENANT_RUN_ID": "1" * 32,
        "COTENANT_MEMORY": "1G",
        "LD_PRELOAD": f"{native_files.shim()}:/other.so",
        "PYTHONPATH": f"{python_path.FOLDER}:/own",
        "COTENANT_QUIET": "1",
    }
    assert environment.of_no_tenant(outer) == {
        "LD_PRELOAD": "/other.so",
        "PYTHONPATH": "/own",
        "COTENANT_QUIET": "1",
    }


def test_every_run_has_a_number_of_its_own() -> None:
    made = [environment.of_tenant({}, Path("/d"), Path("/s"), "standard", "job") for _ in range(3)]
    numbers = {one["COTENANT_RUN_ID"] for one in made}
    assert len(numbers) == 3 and all(re.fullmatch("[0-9a-f]{32}", one) for one in numbers)


def environment_in(output: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)


def test_the_command_has_the_same_pid(env: dict[str, str]) -> None:
    command = [*COTENANT, "run", "--", "sh", "-c", "echo $$"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as child:
        out, _ = child.communicate(timeout=60)
    assert int(out) == child.pid


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_the_exit_status_is_the_commands(cotenant: Run, env: dict[str, str], status: int) -> None:
    assert cotenant("run", "sh", "-c", f"exit {status}", env=env).returncode == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_death_by_signal_is_seen_by_the_parent(cotenant: Run, env: dict[str, str], number: int) -> None:
    assert cotenant("run", "--", "sh", "-c", f"kill -{int(number)} $$", env=env).returncode == -number


def test_stdin_and_stdout_are_the_commands(cotenant: Run, env: dict[str, str]) -> None:
    done = cotenant("run", "--", "cat", env=env, input="to be copied\n")
    assert (done.stdout, done.stderr, done.returncode) == ("to be copied\n", "", 0)


def test_signals_that_python_ignores_are_not_ignored_in_the_command(
    cotenant: Run, env: dict[str, str]
) -> None:
    question = ("grep", "SigIgn", "/proc/self/status")
    plainly = subprocess.run(question, check=True, capture_output=True, text=True)
    assert cotenant("run", "--", *question, env=env).stdout == plainly.stdout


@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C"}, {"LC_CTYPE": "C"}])
def test_the_environment_differs_only_in_what_makes_it_a_tenant(
    cotenant: Run, env: dict[str, str], locale: dict[str, str]
) -> None:
    given = {k: v for k, v in env.items() if not k.startswith("LC_") and k != "LANG"} | locale
    seen = environment_in(cotenant("run", "--", "env", env=given).stdout)
    assert {k for k in seen | given if seen.get(k) != given.get(k)} <= SETTINGS
    assert seen.keys() == given.keys() | SETTINGS


def test_a_tenant_is_told_driver_segment_class_and_run(
    cotenant: Run, env: dict[str, str], stand_ins: Path
) -> None:
    seen = [environment_in(cotenant("run", "--", "env", env=env).stdout) for _ in range(2)]
    assert seen[0]["COTENANT_DRIVER"] == str(stand_ins / "driver" / "libcuda.so.1")
    assert seen[0]["COTENANT_SEGMENT"] == env["COTENANT_SEGMENT"]
    assert seen[0]["COTENANT_CLASS"] == "standard"
    assert seen[0]["LD_PRELOAD"] == str(stand_ins / "shim" / "libcuda.so.1")
    assert all(re.fullmatch("[0-9a-f]{32}", one["COTENANT_RUN_ID"]) for one in seen)
    assert seen[0]["COTENANT_RUN_ID"] != seen[1]["COTENANT_RUN_ID"]


def test_the_segment_is_made_and_then_kept(cotenant: Run, env: dict[str, str]) -> None:
    path = Path(env["COTENANT_SEGMENT"])
    cotenant("run", "true", env=env)
    first = path.stat()
    cotenant("run", "true", env=env)
    assert path.stat().st_ino == first.st_ino
    assert first.st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.glob("segment*")] == ["segment"]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--", "echo", "--class", "x"], "--class x"),
        (["echo", "--class", "x"], "--class x"),
        (["printf", "%s\\n", "--help"], "--help"),
        (["--class", "production", "echo", "--", "-o"], "-- -o"),
        (["--class=production", "--", "echo", "--"], "--"),
    ],
)
def test_what_follows_the_command_is_the_commands(
    cotenant: Run, env: dict[str, str], arguments: list[str], printed: str
) -> None:
    assert cotenant("run", *arguments, env=env).stdout == printed + "\n"


def test_a_missing_program_is_127(cotenant: Run, env: dict[str, str]) -> None:
    for name in ("no-such-program", "./no-such-program", "/no/such/program"):
        done = cotenant("run", "--", name, env=env)
        assert done.returncode == 127
        assert done.stderr.startswith(f"error: cannot run '{name}'")
        assert "Traceback" not in done.stderr


def test_what_cannot_be_executed_is_126(cotenant: Run, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a program")
    for path in (tmp_path / "text", tmp_path):
        done = cotenant("run", "--", path, env=env)
        assert done.returncode == 126
        assert done.stderr.startswith(f"error: cannot run '{path}'")


def test_a_file_on_the_path_that_cannot_be_executed_is_126(
    cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "thing").write_text("not a program")
    assert cotenant("run", "thing", env=env | {"PATH": str(tmp_path)}).returncode == 126


def test_a_script_without_an_interpreter_line_runs_in_the_shell(
    cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$1"\n')
    script.chmod(0o755)
    assert cotenant("run", "--", script, "argument", env=env).stdout == "argument\n"


def test_a_static_program_runs_and_is_told_of(cotenant: Run, env: dict[str, str], tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    program = tmp_path / "program"
    source = "int main(void) { return 5; }"
    words = [str(compiler), "-static", "-x", "c", "-", "-o", str(program)]
    if not compiler or subprocess.run(words, input=source, text=True, check=False).returncode:
        pytest.skip("no compiler that links statically")
    done = cotenant("run", "--", str(program), env=env)
    assert (done.returncode, done.stdout) == (5, "")
    told = f"cotenant: {program} is statically linked, so only programs that it starts are scheduled"
    assert told in done.stderr.splitlines()
    assert "statically" not in cotenant("run", "--quiet", "--", str(program), env=env).stderr
    assert "statically" not in cotenant("run", "--", "true", env=env).stderr


def test_a_program_of_another_c_library_is_told_of(
    cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    compiler, program = shutil.which("gcc"), tmp_path / "program"
    loader = "/lib/ld-musl-x86_64.so.1"
    words = [str(compiler), f"-Wl,--dynamic-linker={loader}", "-x", "c", "-", "-o", str(program)]
    if not compiler or subprocess.run(words, input="int main(void) {}", text=True, check=False).returncode:
        pytest.skip("no compiler")
    told = f"cotenant: {program} is linked with musl, so only programs that it starts are scheduled"
    assert told in cotenant("run", "--", str(program), env=env).stderr.splitlines()


def test_a_program_that_changes_its_user_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    program.chmod(0o4755)
    assert execute.unreachable(str(program)) == ""  # one's own changes nothing
    monkeypatch.setattr(os, "getuid", lambda: program.stat().st_uid + 1)
    assert "setuid" in execute.unreachable(str(program))
    program.chmod(0o755)
    assert execute.unreachable(str(program)) == ""


def test_a_missing_interpreter_is_127(cotenant: Run, env: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = cotenant("run", "--", script, env=env)
    assert done.returncode == 127
    assert "interpreter" in done.stderr


def test_an_inner_run_replaces_the_outers_settings(
    cotenant: Run, env: dict[str, str], stand_ins: Path, tmp_path: Path
) -> None:
    inner = f"echo OUTER=$COTENANT_RUN_ID; exec {' '.join(COTENANT)} run --class opportunistic --segment {tmp_path}/in"
    done = cotenant("run", "--class", "production", "--", "sh", "-c", f"{inner} -- env", env=env)
    seen = environment_in(done.stdout)
    assert seen["LD_PRELOAD"] == str(stand_ins / "shim" / "libcuda.so.1")
    assert seen["COTENANT_CLASS"] == "opportunistic"
    assert seen["COTENANT_SEGMENT"] == f"{tmp_path}/in"
    assert seen["COTENANT_RUN_ID"] != seen["OUTER"]
    assert done.stderr == ""


def test_an_inner_run_drops_the_interposer_of_another_installation(
    cotenant: Run, env: dict[str, str], stand_ins: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "shim" / "libcuda.so.1"
    other.parent.mkdir(parents=True)
    other.symlink_to(stand_ins / "shim" / "libcuda.so.1")
    seen = environment_in(cotenant("run", "env", env=env | {"LD_PRELOAD": str(other)}).stdout)
    assert seen["LD_PRELOAD"] == str(stand_ins / "shim" / "libcuda.so.1")


@pytest.mark.parametrize("separator", [":", " ", " : "])
def test_other_preloads_stay_behind_ours_in_order(
    cotenant: Run, env: dict[str, str], stand_ins: Path, separator: str
) -> None:
    first, second = stand_ins / "tools" / "other.so", stand_ins / "libcotenant_wire.so"
    given = env | {"LD_PRELOAD": f"{first}{separator}{second}"}
    done = cotenant("run", "--", "cat", "/proc/self/environ", "/proc/self/maps", env=given)
    shim = stand_ins / "shim" / "libcuda.so.1"
    assert f"LD_PRELOAD={shim}:{first}:{second}\0" in done.stdout
    assert all(str(library) in done.stdout.rsplit("\0", 1)[1] for library in (shim, first, second))


def test_dry_run_prints_what_a_shell_understands_and_does_nothing(
    cotenant: Run, env: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "with a space"
    done = cotenant("run", "--dry-run", "--segment", path, "no-such-program", "two words", env=env)
    assert done.returncode == 0
    *settings, command = done.stdout.splitlines()
    assert command == "no-such-program 'two words'"
    assert {line.split("=")[0] for line in settings} == SETTINGS
    script = "\n".join([*settings, 'printf %s "$COTENANT_SEGMENT"'])
    assert subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True).stdout == str(
        path
    )
    assert not path.exists()


def test_gpu_becomes_cuda_visible_devices(cotenant: Run, env: dict[str, str]) -> None:
    given = env | {"CUDA_VISIBLE_DEVICES": "3,5,7"}
    seen = environment_in(cotenant("run", "--gpu", "2,0", "env", env=given).stdout)
    assert seen["CUDA_VISIBLE_DEVICES"] == "7,3"


def test_gpu_from_the_environment_is_applied_once_in_nested_runs(cotenant: Run, env: dict[str, str]) -> None:
    given = env | {"CUDA_VISIBLE_DEVICES": "3,5,7", "COTENANT_GPU": "1"}
    seen = environment_in(cotenant("run", "--", *COTENANT, "run", "env", env=given).stdout)
    assert seen["CUDA_VISIBLE_DEVICES"] == "5"


def test_an_unknown_gpu_is_an_error_before_the_program_starts(cotenant: Run, env: dict[str, str]) -> None:
    done = cotenant("run", "--gpu", "4", "echo", "started", env=env | {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = done.stderr.splitlines()
    assert error == "error: unknown GPU '4'"
    assert "0 (0); 1 (1)" in hint


def no_driver(env: dict[str, str], folder: Path) -> dict[str, str]:
    return env | {"COTENANT_DRIVER": "/no/such/libcuda.so.1"}


def no_interposer(env: dict[str, str], folder: Path) -> dict[str, str]:
    (folder / "shim" / "libcuda.so.1").unlink()
    return env


def a_space_in_the_path(env: dict[str, str], folder: Path) -> dict[str, str]:
    spaced = folder.with_name("stand ins")
    folder.rename(spaced)
    return env | {"COTENANT_NATIVE": str(spaced), "LD_LIBRARY_PATH": str(spaced / "driver")}


def no_wire(env: dict[str, str], folder: Path) -> dict[str, str]:
    (folder / "libcotenant_wire.so").unlink()
    return env


def broken_wire(env: dict[str, str], folder: Path) -> dict[str, str]:
    (folder / "libcotenant_wire.so").write_bytes(b"not a library")
    return env


def no_such_folder(env: dict[str, str], folder: Path) -> dict[str, str]:
    return env | {"COTENANT_SEGMENT": "/no/such/folder/segment"}


def foreign_segment(env: dict[str, str], folder: Path) -> dict[str, str]:
    Path(env["COTENANT_SEGMENT"]).write_bytes(b"somebody's file " * 1000)
    return env


def other_version(env: dict[str, str], folder: Path) -> dict[str, str]:
    Path(env["COTENANT_SEGMENT"]).write_bytes(b"cotenant" + (999).to_bytes(4, "little") + bytes(1 << 20))
    return env


OBSTACLES: list[Obstacle] = [
    no_driver,
    no_interposer,
    a_space_in_the_path,
    no_wire,
    broken_wire,
    no_such_folder,
    foreign_segment,
    other_version,
]


@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda function: function.__name__)
def test_where_sharing_is_impossible_the_command_runs_without_it(
    cotenant: Run, env: dict[str, str], stand_ins: Path, obstacle: Obstacle
) -> None:
    done = cotenant("run", "--", "env", env=obstacle(env, stand_ins))
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("cotenant: ")
    assert "running without sharing" in line
    assert "LD_PRELOAD" not in environment_in(done.stdout)


@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda function: function.__name__)
def test_require_turns_that_into_an_error_before_the_program_starts(
    cotenant: Run, env: dict[str, str], stand_ins: Path, obstacle: Obstacle
) -> None:
    done = cotenant("run", "--require", "--", "echo", "started", env=obstacle(env, stand_ins))
    assert (done.returncode, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")


def test_without_sharing_nothing_of_an_outer_run_is_left(
    cotenant: Run, env: dict[str, str], stand_ins: Path
) -> None:
    (stand_ins / "bad").write_bytes(b"somebody's file")
    inner = (*COTENANT, "run", "--segment", str(stand_ins / "bad"), "env")
    seen = environment_in(cotenant("run", "--", *inner, env=env).stdout)
    assert not SETTINGS & seen.keys()


def test_without_a_driver_the_hint_is_the_software_gpu(cotenant: Run, env: dict[str, str]) -> None:
    without = {k: v for k, v in env.items() if k != "LD_LIBRARY_PATH"}
    with contextlib.suppress(driver.NoDriver):
        pytest.skip(f"this machine has a driver: {driver.find(without)}")
    done = cotenant("run", "--", "true", env=without)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "cotenant: no NVIDIA driver found: running without sharing; hint: `cotenant softgpu --"
    )


def test_run_imports_only_what_it_needs(env: dict[str, str]) -> None:
    source = (
        "import sys; from cotenant.cli import main; main(['run', '--dry-run', 'true']);"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], env=env, check=True, capture_output=True, text=True, timeout=60
    )
    imported = set(done.stdout.splitlines()[-1].split())
    assert not imported & {
        "rich",
        "pynvml",
        "elftools",
        "cuda",
        "numpy",
        "matplotlib",
        "subprocess",
        "asyncio",
    }


def test_a_terminal_stays_the_commands(env: dict[str, str]) -> None:
    leader, follower = os.openpty()
    try:
        command = [*COTENANT, "run", "--", "sh", "-c", "test -t 0 && test -t 1 && echo both"]
        with subprocess.Popen(command, env=env, stdin=follower, stdout=follower) as child:
            assert child.wait(timeout=60) == 0
        assert os.read(leader, 100).strip() == b"both"
    finally:
        os.close(leader)
        os.close(follower)


def test_closed_standard_streams_are_the_commands_business(env: dict[str, str], tmp_path: Path) -> None:
    """Nothing of ours may land in a stream that it is not for, nor keep the command from running."""
    marker = tmp_path / "ran"
    command = f"{' '.join(COTENANT)} run --segment /no/such/folder/segment -- touch {marker}"
    for closed in (">&-", "2>&-", ">&- 2>&- <&-", "2>/dev/full"):
        done = subprocess.run(["sh", "-c", f"{command} {closed}"], check=False, env=env, capture_output=True)
        assert (done.returncode, done.stdout) == (0, b""), closed
        marker.unlink()


def test_what_was_closed_is_closed_for_the_command_too(env: dict[str, str], tmp_path: Path) -> None:
    found = tmp_path / "found"
    source = (
        "import os, sys\n"
        "is_open = [os.path.exists(f'/proc/self/fd/{number}') for number in range(3)]\n"
        "open(sys.argv[1], 'w').write(str(is_open))"
    )
    command = shlex.join([*COTENANT, "run", "--", sys.executable, "-c", source, str(found)])
    for closed, is_open in (("<&-", [False, True, True]), (">&- 2>&-", [True, False, False])):
        done = subprocess.run(["sh", "-c", f"{command} {closed}"], check=False, env=env)
        assert (done.returncode, found.read_text()) == (0, str(is_open))


def test_what_is_no_text_is_handed_on_unchanged(env: dict[str, str]) -> None:
    odd = b"caf\xe9"
    run = [os.fsencode(word) for word in (*COTENANT, "run")]
    done = subprocess.run([*run, b"printf", b"%s", odd], check=True, env=env, capture_output=True)
    assert done.stdout == odd
    done = subprocess.run([*run, b"--dry-run", b"printf", odd], check=True, env=env, capture_output=True)
    assert done.stdout.endswith(b"printf '" + odd + b"'\n")


def test_a_segment_on_a_disk_is_no_use_to_a_real_driver(
    cotenant: Run, env: dict[str, str], stand_ins: Path, tmp_path: Path
) -> None:
    if segment.is_in_memory(tmp_path):
        pytest.skip("this machine's temporary files are in memory")
    (stand_ins / "driver" / "softgpud").unlink()
    done = cotenant("run", "echo", "ran", env=env)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "is on a disk: running without sharing" in done.stderr
    required = cotenant("run", "--require", "echo", "ran", env=env)
    assert (required.returncode, required.stdout) == (1, "")
    on_tmpfs = cotenant(
        "run", "--require", "echo", "ran", env=env | {"COTENANT_SEGMENT": f"/dev/shm/{tmp_path.name}-test"}
    )
    Path(f"/dev/shm/{tmp_path.name}-test").unlink(missing_ok=True)
    assert (on_tmpfs.returncode, on_tmpfs.stdout) == (0, "ran\n"), on_tmpfs.stderr


def test_what_keeps_the_daemon_away_is_said_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cotenant.commands.run import look_after

    path = tmp_path / "segment"
    path.write_bytes(b"no segment")
    look_after(path, "fair", no_daemon=True)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"cotenant: no daemon runs for {path}, the rules go on without it: ")


AS_SOMEBODY_ELSE = """
import os, sys
from cotenant import segment
from cotenant.cli import main
from cotenant.commands import run, status
segment.wire_library()  # it may lie where that user does not come in
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


def test_a_segment_that_may_not_be_read_stops_no_command(
    softgpu_env: dict[str, str], run_python: RunPython
) -> None:
    with tempfile.TemporaryDirectory(prefix="cotenant-test-") as beside:
        Path(beside).chmod(0o755)
        path = Path(beside) / "segment"
        path.touch(mode=0o000)
        env = softgpu_env | {"COTENANT_SEGMENT": str(path)}
        done = run_python(AS_SOMEBODY_ELSE, env, "run", "echo", "ran")
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
        (line,) = done.stderr.splitlines()
        assert str(path) in line and "running without sharing" in line
        done = run_python(AS_SOMEBODY_ELSE, env, "status")
        assert done.returncode == 1 and f"{path} cannot be read" in done.stderr


def test_a_program_is_found_as_execvp_finds_it(tmp_path: Path) -> None:
    for folder, mode in (("first", 0o644), ("second", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "job").touch(mode)
    both = {"PATH": f"{tmp_path}/none:{tmp_path}/first:{tmp_path}/second"}
    assert execute.find_program("job", both) == f"{tmp_path}/second/job"
    for path, status in ((f"{tmp_path}/first", 126), (f"{tmp_path}/none", 127)):
        with pytest.raises(Problem) as told:
            execute.find_program("job", {"PATH": path})
        assert told.value.status == status


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_only_another_ones_setuid_program_takes_other_rights(tmp_path: Path) -> None:
    file = tmp_path / "job"
    file.touch()
    for owner, group, mode, expected in (
        (0, 0, 0o6755, False),
        (7, 0, 0o4755, True),
        (7, 0, 0o755, False),
        (0, 7, 0o2755, True),
        (7, 0, 0o2755, False),
    ):
        os.chown(file, owner, group)
        file.chmod(mode)
        assert execute.takes_other_rights(str(file)) is expected


def test_what_else_is_preloaded_here_is_not_in_a_container() -> None:
    shim = str(native_files.shim())
    tenant = {"COTENANT_DRIVER": "/nowhere/libcuda.so.1", "LD_PRELOAD": f"{shim}:/usr/lib/libtcmalloc.so.4"}
    assert mounts.variables(tenant) == {"LD_PRELOAD": shim}
