"""docs/configuration.md has the table of all settings from here (`cotenant config table`)."""

from __future__ import annotations

from cotenant.config import settings


def table() -> str:
    lines = ["| key | flag | variable | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for one in settings.SETTINGS:
        metavar = f"={one.metavar}" if one.metavar else ""
        flag = ", ".join(f"`{flag}`" for flag in f"{one.flag}{metavar}".split("/")) if one.is_switch else ""
        flag = flag or f"`{one.flag}{metavar}`"
        command = f"`{one.table}` " if one.table else ""
        cells = (
            f"`{one.key}`",
            command + flag,
            f"`{one.environment_variable}`",
            one.default_in_words(),
            one.help,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
