"""The live screen: the lines of `frame`, a look after the other, and keys to sort, filter and group them and to steer
tenants. Class, pause and resume are the whole run's, as those commands have it; a signal goes to the tenant of the
chosen line or, where that is a run, to all tenants of the run.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from cotenant import classes, endings, segment, units
from cotenant.errors import Problem
from cotenant.tenants import wait_reasons
from cotenant.top import actions, frame, looking
from cotenant.top.model import SORTS, Model, Picture, Row

Chosen = tuple[object, ...]
Act = Callable[[segment.Tenant], Awaitable[str]]

STEERING = ("change_class", "pause", "resume", "end")


class Ask(ModalScreen[str]):
    """A question with a key for each answer. Every other key is no answer: the empty text."""

    CSS = """
    Ask { align: center middle; }
    Ask Static { width: auto; max-width: 90%; height: auto; padding: 1 2; border: round $warning; }
    """

    def __init__(self, question: str, answers: Mapping[str, str]) -> None:
        super().__init__()
        self.answers = answers
        self.text = "\n".join([question, "", *(f"{key}  {what}" for key, what in answers.items())])

    def compose(self) -> ComposeResult:
        yield Static(f"{self.text}\nany other key: nothing", markup=False)

    def on_key(self, event: Key) -> None:
        event.stop()
        self.dismiss(event.key if event.key in self.answers else "")


class Top(App[None]):
    """Texts come from guests: no widget takes markup from them."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title { text-style: bold; }
    #gpus { height: auto; max-height: 50%; }
    #heading { text-style: reverse; height: 1; }
    #tenants { height: 1fr; border: none; padding: 0; scrollbar-size-vertical: 1; }
    #about { height: auto; max-height: 2; color: $text-muted; }
    #answer { display: none; height: auto; max-height: 3; text-style: bold; }
    #filter { display: none; height: 1; border: none; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("s", "sort", "sort"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("escape", "unfilter", show=False),
        Binding("t", "tree", "tree"),
        Binding("c", "change_class", "class"),
        Binding("p", "pause", "pause"),
        Binding("r", "resume", "resume"),
        Binding("k", "end", "kill"),
    ]

    def __init__(
        self, path: Path, interval_seconds: float, readonly: bool = False, words: Sequence[str] = ()
    ) -> None:
        """`words`: the jobs that are shown; none: all."""
        super().__init__()
        self.words = words
        self.readonly = readonly
        self.path = path
        self.interval_seconds = interval_seconds
        self.model = Model()
        self.picture: Picture | None = None
        self.sort = next(iter(SORTS))
        self.wanted = ""
        self.is_tree = False
        self.lines: list[frame.Line] = []

        # By name: a message may still come when the screen is closing, and a query would find nothing.
        self.top_line = Static(id="title", markup=False)
        self.gpu_lines = Static(markup=False)
        self.heading = Static(id="heading", markup=False)
        self.table = OptionList(id="tenants", markup=False)
        self.about = Static(id="about", markup=False)
        self.answer_line = Static(id="answer", markup=False)
        self.filter_line = Input(id="filter", placeholder="job, program, PID, class, state or run")

    def compose(self) -> ComposeResult:
        yield self.top_line
        with VerticalScroll(id="gpus", can_focus=False):
            yield self.gpu_lines
        yield self.heading
        yield self.table
        yield self.about
        yield self.answer_line
        yield self.filter_line
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.end_in_order()
        self.table.focus()
        self.look()
        self.set_interval(self.interval_seconds, self.look)

    def end_in_order(self) -> None:
        """A signal that would end this process at once would leave the terminal raw, and on the other screen."""
        for number in endings.SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                asyncio.get_running_loop().add_signal_handler(number, self.exit, None, 128 + number)

    def on_resize(self) -> None:
        self.draw()

    def look(self) -> None:
        try:
            self.picture = looking.look(self.model, self.path, self.words)
        except Problem as problem:  # somebody has replaced the segment: it may come back
            self.top_line.update(f"{problem.message}: {problem.hint}")
            return
        self.draw()

    def draw(self) -> None:
        if self.picture is None:
            return
        chosen = self.chosen()
        width = self.size.width - 1  # the table has a scroll bar
        self.lines = frame.lines_of(self.picture, self.sort, self.wanted, self.is_tree)
        heading, *texts = frame.rows_of(self.lines, width)
        how = f", sorted by {self.sort}" + (f", with '{self.wanted}'" if self.wanted else "")
        with self.batch_update():
            self.top_line.update((frame.title(self.picture) + how)[: self.size.width])
            self.gpu_lines.update("\n".join(frame.gpu_lines(self.picture.gpus, self.size.width)))
            self.heading.update(heading)
            self.table.set_options(Option(text) for text in texts)
            names = [name_of(line) for line in self.lines]
            if names:
                self.table.highlighted = names.index(chosen) if chosen in names else 0
            self.tell()

    def chosen_line(self) -> frame.Line | None:
        at = self.table.highlighted
        return self.lines[at] if at is not None and at < len(self.lines) else None

    def chosen(self) -> Chosen | None:
        line = self.chosen_line()
        return name_of(line) if line else None

    def on_option_list_option_highlighted(self) -> None:
        self.tell()

    def tell(self) -> None:
        """More about the chosen line, and who delays it."""
        line = self.chosen_line()
        self.about.update(
            about_row(self.picture.seen, line.rows[0]) if self.picture and line else "no tenants"
        )

    def action_sort(self) -> None:
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]
        self.draw()

    def action_tree(self) -> None:
        self.is_tree = not self.is_tree
        self.draw()

    def action_filter(self) -> None:
        self.filter_line.display = True
        self.filter_line.focus()

    def action_unfilter(self) -> None:
        self.filter_line.value = ""
        self.on_input_submitted()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.wanted = event.value.strip()
        self.draw()

    def on_input_submitted(self) -> None:
        self.filter_line.display = False
        self.table.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self.readonly and action in STEERING)

    def action_change_class(self) -> None:
        async def change(one: segment.Tenant, key: str) -> str:
            return await actions.command(self.path, "ctl", str(one.pid), "--class", keys[key])

        keys = {name[0]: name for name in classes.NAMES}
        self.ask("Change the class of", self.chosen_tenants()[:1], keys, change)

    def action_pause(self) -> None:
        self.steer(self.chosen_tenants()[:1], lambda one: actions.command(self.path, "pause", str(one.pid)))

    def action_resume(self) -> None:
        self.steer(self.chosen_tenants()[:1], lambda one: actions.command(self.path, "resume", str(one.pid)))

    def action_end(self) -> None:
        async def end(one: segment.Tenant, key: str) -> str:
            return actions.end(self.path, one, signal.SIGTERM if key == "y" else signal.SIGKILL)

        self.ask("Kill", self.chosen_tenants(), {"y": "yes: send SIGTERM", "9": "send SIGKILL"}, end)

    def chosen_tenants(self) -> list[segment.Tenant]:
        line = self.chosen_line()
        return list({row.tenant.pid: row.tenant for row in line.rows}.values()) if line else []

    def ask(
        self,
        what: str,
        tenants: Sequence[segment.Tenant],
        answers: Mapping[str, str],
        act: Callable[[segment.Tenant, str], Awaitable[str]],
    ) -> None:

        def answered(key: str | None) -> None:
            if key:
                self.steer(tenants, lambda one: act(one, key))

        if tenants:
            names = ", ".join(f"{one.pid} ({one.program})" for one in tenants)
            self.push_screen(Ask(f"{what} {names}?", answers), answered)

    def steer(self, tenants: Iterable[segment.Tenant], act: Act) -> None:
        """The screen lives on meanwhile: a tenant whose memory moves takes a while to answer."""

        async def one_by_one() -> None:
            for one in tenants:
                try:
                    self.answer(await act(one))
                except (Problem, OSError) as problem:
                    self.answer(f"error: {problem}")
            self.look()

        self.run_worker(one_by_one())

    def answer(self, text: str) -> None:
        """Stays until the next."""
        self.answer_line.update("; ".join(text.splitlines()))
        self.answer_line.display = True


def name_of(line: frame.Line) -> Chosen:
    """The same from look to look."""
    return line.is_run, *(row.key for row in line.rows)


def about_row(seen: segment.Snapshot, row: Row) -> str:
    tenant, use = row.tenant, row.here.use
    run = f", run {tenant.run_id[:8]}" if row.is_of_a_run else ""
    lane = f", a lane of {tenant.process}," if tenant.lane else ""
    head = f"{tenant.pid} ({tenant.program}){lane} of user {tenant.uid}{run}"
    head += waits_and_preemptions(row)
    why = list(wait_reasons.reasons(seen, tenant, use, segment.now_ns()))
    if why and use.busy:
        return f"{head} waits: {'; '.join(why)}"
    delays = ", ".join(f"{name} in {share:.0%} of the last looks" for name, share in row.delayed_by)
    return f"{head}, delayed by {delays}" if delays else head


def waits_and_preemptions(row: Row) -> str:
    p50, p99 = row.lately.wait_p50_us, row.lately.wait_p99_us
    waits = (
        f", waits {units.duration_shown(p50)} (p99 {units.duration_shown(p99)})" if p99 is not None else ""
    )
    count = row.here.use.preemptions
    return f"{waits}, preempted {units.count_shown(count)} times" if count else waits
