"""The name of a job: what `--name` says, else the program's own; for an interpreter that of its script."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from cotenant.errors import USAGE, Problem

LONGEST_BYTES = 63  # that Slot::job holds (native/wire/wire.h)
SHELLS = {"bash", "dash", "ksh", "sh", "zsh"}
INTERPRETER = re.compile(r"(?:python|pypy|ipython|perl|ruby|node|julia|Rscript|lua)[\d.]*|[bd]?ash|k?sh|zsh")
SCRIPT = re.compile(r".+\.(?:py|sh|bash|pl|rb|js|jl|R|lua|ipynb)")
# They start the command that they are given, after options of their own.
LAUNCHERS = {
    "accelerate", "chrt", "deepspeed", "env", "ionice", "mpiexec", "mpirun", "nice", "nohup", "numactl", "nsys",
    "srun", "stdbuf", "taskset", "time", "timeout", "torchrun", "uv",
}  # fmt: skip
LAUNCHING_MODULES = {"accelerate.commands.launch", "torch.distributed.launch", "torch.distributed.run"}
TAKES_A_VALUE = {"-W", "-X", "--check-hash-based-pycs", "-o", "-O", "--rcfile", "--init-file"}
# They prepare a shell for the program that comes after them.
PREPARATIONS = {".", "cd", "conda", "export", "module", "set", "source", "ulimit", "umask"}


def checked(text: str) -> str:
    """As `--name` may be. Raises Problem."""
    if len(text.encode(errors="replace")) > LONGEST_BYTES:
        raise Problem(f"a job's name has at most {LONGEST_BYTES} bytes", "choose a shorter one", USAGE)
    if not text or not text.isprintable() or " " in text or text.startswith("-") or text.isdecimal():
        hint = "letters, digits and marks such as - and _, no space, and not only digits: those mean a PID"
        raise Problem(f"'{text}' is no name for a job", hint, USAGE)
    return text


def of_command(words: Sequence[str]) -> str:
    """Never an interpreter's own where it can be helped: all would have the same."""
    found = "".join("_" if not one.isprintable() or one == " " else one for one in found_in(words))
    name = found.encode(errors="replace")[:LONGEST_BYTES].decode(errors="ignore").lstrip("-")
    return f"job-{name}" if not name or name.isdecimal() else name


def found_in(words: Sequence[str]) -> str:
    program = os.path.basename(words[0])
    if INTERPRETER.fullmatch(program):
        return of_interpreter(program, words[1:])
    return of_launcher(program, words[1:]) if program in LAUNCHERS else program


def of_interpreter(program: str, words: Sequence[str]) -> str:
    rest = iter(enumerate(words, start=1))
    for after, word in rest:
        flag = word[-1:] if re.fullmatch("-[A-Za-z]+", word) else ""
        if flag == "c" and after < len(words):
            return of_code(program, words[after])
        if flag == "m" and after < len(words):
            module = words[after]
            is_launching = module in LAUNCHING_MODULES
            return of_launcher(module, words[after + 1 :]) if is_launching else module
        if word in TAKES_A_VALUE:
            next(rest, None)
        elif word != "--" and not word.startswith(("-", "+")):
            return os.path.basename(word)
    return f"{program}-session"


def of_code(program: str, code: str) -> str:
    """A shell's code names programs; of another interpreter's it can only be said that it is code."""
    lexer = shlex.shlex(code, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        for word in [*lexer, ";"] if program in SHELLS else ():
            if not re.fullmatch("[();<>|&]+", word):
                if words or not re.fullmatch(r"\w+=.*|exec", word):
                    words.append(word)
            elif words and words[0] not in PREPARATIONS:
                return found_in(words)
            else:
                words = []
    except ValueError:  # quotes that do not close
        pass
    return f"{program}-code"


def of_launcher(program: str, words: Sequence[str]) -> str:
    """Which of its words is an option's value is the launcher's to know: a script is known by its ending."""
    for at, word in enumerate(words):
        base = os.path.basename(word)
        if INTERPRETER.fullmatch(base) or base in LAUNCHERS:
            return found_in(words[at:])
        if SCRIPT.fullmatch(base) and not word.startswith("-"):
            return base
        if word in ("-m", "--module") and at + 1 < len(words):
            return words[at + 1]
    return program
