"""The hardware's time slice: after the driver has asked the kernel for one, we ask for that of the class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RunPython
    from tests.interposer.conftest import Compile

    Ask = Callable[..., list[str]]

SET_TIME_SLICE = 0xA06C0103
ASK = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).null_driver_slice(99, int(sys.argv[2]))"


@pytest.fixture
def ask(native: Path, compiled: Compile, plain_env: dict[str, str], run_python: RunPython) -> Ask:
    """What the kernel was asked for and how it answered, a line a time."""
    driver, kernel = compiled("null_driver", "-shared"), compiled("kernel_module", "-shared")

    def ask(tenant_class: str, command: int = SET_TIME_SLICE, **extra: str) -> list[str]:
        env = plain_env | {
            "LD_PRELOAD": f"{native / 'shim' / 'libcuda.so.1'}:{kernel}",
            "COTENANT_CLASS": tenant_class,
        }
        done = run_python(ASK, env | extra, driver, str(command))
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return ask


@pytest.mark.parametrize(
    ("tenant_class", "ours"),
    [("production", ["1000000 taken"]), ("standard", ["1000 taken"]), ("opportunistic", ["1000 taken"])],
)
def test_each_class_has_its_slice(ask: Ask, tenant_class: str, ours: list[str]) -> None:
    assert ask(tenant_class) == ["2048 taken", *ours]


def test_other_calls_to_the_kernel_are_left_alone(ask: Ask) -> None:
    assert ask("production", SET_TIME_SLICE + 1) == ["2048 taken"]


def test_a_kernel_that_refuses_gets_the_drivers_own(ask: Ask) -> None:
    assert ask("production", COTENANT_TEST_REFUSE="1") == ["2048 taken", "1000000 refused", "2048 taken"]


@pytest.mark.parametrize("refuses", [True, False])
def test_a_slice_that_was_asked_for_before_the_first_work_is_in_the_tenants_slot(
    native: Path, compiled: Compile, preloaded: dict[str, str], run_python: RunPython, refuses: bool
) -> None:
    """As with a driver: it makes its channels with the context."""
    driver, kernel = compiled("null_driver", "-shared"), compiled("kernel_module", "-shared")
    program = f"""{ASK}
import os
from pathlib import Path
from cotenant import segment
from soft import Gpu
gpu = Gpu(); gpu.launch(gpu.kernel('empty')); gpu.synchronize()
(tenant,) = segment.read(Path(os.environ['COTENANT_SEGMENT'])).tenants
print(tenant.time_slice_us, tenant.time_slice_refused)
"""
    env = preloaded | {
        "LD_PRELOAD": f"{native / 'shim' / 'libcuda.so.1'}:{kernel}",
        "COTENANT_DRIVER": str(native / "softgpu" / "libcuda.so.1"),
        "COTENANT_CLASS": "production",
    }
    env |= {"COTENANT_TEST_REFUSE": "1"} if refuses else {}
    done = run_python(program, env, driver, str(SET_TIME_SLICE))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ("2048 True" if refuses else "1000000 False")
