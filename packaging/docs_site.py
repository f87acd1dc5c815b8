"""What the documentation's site has beyond the pages of docs/ (mkdocs.yml): a page for each command, the policies, the
fields of View and Tenant, and what `cotenant doctor` finds, all read from the code; SECURITY.md and CHANGELOG.md.

A page of docs/ that mkdocs.yml does not name is listed under More.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from cotenant import manual
from cotenant.cli import cli
from cotenant.doctor import checks
from cotenant.policies import interface, registry

TREE = Path(__file__).resolve().parents[1]


def on_config(config: Any) -> Any:
    commands = [page.words for page in manual.pages(cli)]
    listed = [{" ".join(words[1:]) or "All": f"commands/{'-'.join(words)}.md"} for words in commands]
    for entry in config.nav:
        if "Commands" in entry:
            entry["Commands"] = listed
    named = set(pages_in(config.nav))
    more = sorted(path.name for path in (TREE / "docs").glob("*.md") if path.name not in named)
    if more:
        config.nav.append({"More": more})
    return config


def pages_in(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for below in nav.values():
            yield from pages_in(below)
    else:
        for below in nav:
            yield from pages_in(below)


def on_files(files: Files, config: Any) -> Files:
    for name, text in generated().items():
        files.append(File.generated(config, name, content=text))
    return files


def generated() -> dict[str, str]:
    made = {f"commands/{page.name}.md": manual.markdown(page) for page in manual.pages(cli)}
    return made | {
        "reference/policies.md": policies(),
        "reference/view.md": fields(),
        "reference/troubleshooting.md": troubleshooting(),
        "security.md": from_above("SECURITY.md"),
        "changelog.md": from_above("CHANGELOG.md"),
    }


def from_above(name: str) -> str:
    """A page of the repository's root: its links into docs/ are links beside it here."""
    return (TREE / name).read_text().replace("](docs/", "](")


def policies() -> str:
    lines = [
        "# Each policy",
        "",
        "`cotenant policies` lists them. The first line of each says what it does; a policy that is only",
    ]
    lines += ["simulated cannot be chosen with `cotenant ctl --policy`.", ""]
    for name in registry.BUILT_IN:
        policy = registry.find(name)
        about = registry.about(policy)
        where = "on a GPU and in the simulator" if about.runs_live else "in the simulator only"
        lines += [
            f"## {name}",
            "",
            f"{about.title}.",
            "",
            f"Rule `{about.rule}`; runs {where}; ticks every {about.every_ms:g} ms.",
            "",
        ]
        module = inspect.getmodule(policy)
        lines += ["```text", inspect.cleandoc(module.__doc__ or "") if module else "", "```", ""]
    return "\n".join(lines)


def fields() -> str:
    """Of the dataclasses at the border of policies, with the comments beside their fields."""
    source = inspect.getsource(interface)
    text = source.splitlines()
    lines = ["# What a policy sees, and what it sets", "", inspect.cleandoc(interface.__doc__ or ""), ""]
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or not any(
            "dataclass" in ast.unparse(one) for one in node.decorator_list
        ):
            continue
        lines += [f"## {node.name}", "", inspect.cleandoc(ast.get_docstring(node) or ""), ""]
        lines += ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
        for one in node.body:
            if isinstance(one, ast.AnnAssign):
                default = f"`{ast.unparse(one.value)}`" if one.value else ""
                _, _, meaning = text[(one.end_lineno or one.lineno) - 1].partition("  # ")
                kind = manual.cell(ast.unparse(one.annotation))
                lines.append(
                    f"| `{ast.unparse(one.target)}` | `{kind}` | {default} | {manual.cell(meaning)} |"
                )
        lines.append("")
    return "\n".join(lines)


def troubleshooting() -> str:
    lines = [
        "# Troubleshooting",
        "",
        "`cotenant doctor` checks the machine, and says for each thing that is not as it should be what to",
    ]
    lines += [
        "do about it. `cotenant explain JOB` says why a job waits now. What `doctor` can find, from its own code:",
        "",
    ]
    found = list(findings())
    for name, (check, _) in checks.CHECKS.items():
        own = [row for row in found if row[0] == name]
        about = inspect.getdoc(check) or ""
        lines += [f"## {name}", "", *([about, ""] if about else [])]
        if own:
            lines += ["| finding | what was found | what to do |", "| --- | --- | --- |"]
            lines += [
                f"| {verdict} | {manual.cell(cause)} | {manual.cell(fix)} |" for _, verdict, cause, fix in own
            ]
            lines.append("")
    return "\n".join(lines)


def findings() -> Iterator[tuple[str, str, str, str]]:
    """Name, verdict, cause and remedy of every Finding that a check can return and that is not "ok"."""
    for file in sorted(Path(inspect.getfile(checks)).parent.glob("*.py")):
        tree = ast.parse(file.read_text())
        for check in (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)):
            for node in ast.walk(check):
                if not (
                    isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding" and len(node.args) >= 3
                ):
                    continue
                name, verdict, cause, fix = ([*(words(one, check) for one in node.args), ""])[:4]
                fix = next((words(one.value, check) for one in node.keywords if one.arg == "fix"), fix)
                if name in checks.CHECKS and verdict in ("warn", "fail"):
                    yield name, verdict, "as the check says" if cause == "..." else cause, fix


def words(node: ast.expr, check: ast.FunctionDef) -> str:
    """A text in the code; what is filled in when it runs is "...", a choice has both."""
    if isinstance(node, ast.Name):
        before = [
            one
            for one in ast.walk(check)
            if isinstance(one, ast.Assign)
            and one.lineno < node.lineno
            and ast.unparse(one.targets[0]) == node.id
        ]
        return words(max(before, key=lambda one: one.lineno).value, check) if before else "..."
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        text = "".join(words(one, check) if isinstance(one, ast.Constant) else "..." for one in node.values)
        return re.sub(r"(\.\.\.){2,}", "...", text)
    if isinstance(node, ast.IfExp):
        return f"{words(node.body, check)}, or {words(node.orelse, check)}"
    if isinstance(node, ast.BinOp):
        return words(node.left, check) + words(node.right, check)
    return "..."
