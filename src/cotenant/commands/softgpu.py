"""`cotenant softgpu`: runs a command with the software GPU in place of NVIDIA's driver."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cotenant.errors import USAGE, Problem, unknown
from cotenant.launch import execute, native_files, preload
from cotenant.options import OneOf
from cotenant.terminal import say

SHARINGS = ("timeslice", "all-at-once")


@click.command(
    "softgpu",
    short_help="Run a command on a software GPU.",
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  cotenant softgpu -- cotenant doctor
  cotenant softgpu --device h200,h200 -- cotenant run --gpu 1 -- ./my-program
  cotenant softgpu --list""",
)
@click.option(
    "--device",
    default="small",
    show_default=True,
    envvar="COTENANT_SOFTGPU",
    metavar="NAME|FILE[,...]",
    help="The GPUs of the machine: shipped devices by name (see --list), or device files.",
)
@click.option(
    "--sharing",
    type=OneOf("sharing", SHARINGS),
    envvar="COTENANT_SOFTGPU_SHARING",
    help="Processes take turns, or run side by side as under MPS.  [default: what the device file says]",
)
@click.option(
    "--list",
    "list_devices",
    is_flag=True,
    envvar="COTENANT_SOFTGPU_LIST",
    help="List the shipped devices, and stop.",
)
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(device: str, sharing: str | None, list_devices: bool, words: tuple[str, ...]) -> None:
    """Run COMMAND with a software GPU in place of NVIDIA's driver.

    All processes of one user share it. It starts with its first client and ends after its last.
    `cotenant softgpu -- cotenant run -- ...` shares the software GPU through Cotenant.
    """
    if list_devices:
        for name, path in native_files.device_files().items():
            say(f"{name}\t{path}")
        return
    if not words:
        raise Problem("no command given", "cotenant softgpu [options] [--] command...", USAGE)
    library = native_files.require(native_files.softgpu() / "libcuda.so.1")
    environment = execute.inherited()
    program = execute.find_program(words[0], environment)
    environment["COTENANT_SOFTGPU"] = ",".join(device_named(item.strip()) for item in device.split(","))
    if sharing:
        environment["COTENANT_SOFTGPU_SHARING"] = sharing
    environment["LD_LIBRARY_PATH"] = ":".join(
        [str(library.parent), *filter(None, [environment.get("LD_LIBRARY_PATH")])]
    )
    # An outer `run` has set these for another driver.
    environment.pop("COTENANT_DRIVER", None)
    preload.drop_shims(environment)
    execute.become(program, words, environment)


def device_named(text: str) -> str:
    """With the MIG instances behind its name, of which the software GPU says whether it can have them."""
    item, colon, instances = text.partition(":")
    return found_device(item) + colon + instances


def found_device(item: str) -> str:
    shipped = native_files.device_files()
    if item in shipped:
        return item
    if os.sep in item or item.endswith(".gpu"):
        path = Path(item).absolute()
        if not path.is_file():
            raise Problem(f"no device file '{item}'", f"shipped devices: {', '.join(shipped)}", USAGE)
        return str(path)
    raise unknown("device", item, shipped)
