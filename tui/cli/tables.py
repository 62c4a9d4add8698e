"""Results as rich tables on stdout. Model text is made safe before it is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from engine.config.counted import counted
from engine.records.schema import Prompt, RowSummary, RunHeader, Summary
from tui.view.sentences import warning_words
from tui.view.showable import showable


def print_run(header: RunHeader, summary: Summary, *, again: str = "") -> None:
    """Each row's text, then what the run cost, and the command line that repeats it."""
    console = Console(highlight=False)
    print_warning(console, warning_words(header.settings))
    for prompt, row in zip(header.prompts, summary.rows, strict=True):
        console.print(_heading(prompt, row))
        asked = " ".join(showable(prompt.text).split())
        console.print(Text(asked, style="dim", no_wrap=True, overflow="ellipsis"))
        console.print(Padding(Text(showable(row.text, newlines=True).strip("\n")), (0, 0, 1, 2)))
    console.print(_costs(header, summary))
    if again:  # one line however long, so that it can be copied
        console.print(Text("\n" + again, style="dim"), soft_wrap=True)


def print_warning(console: Console, warning: str) -> None:
    """What nobody may overlook, if there is anything."""
    if warning:
        console.print(Text(f"{warning[0].upper()}{warning[1:]}.", style="bold red"))


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A borderless table of texts; without columns' names it has no head."""
    rows = list(rows)
    table = Table(box=None, pad_edge=False, show_header=bool(columns))
    for column in columns or [""] * len(rows[0]):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(showable(cell)) for cell in row))
    return table


def _heading(prompt: Prompt, row: RowSummary) -> Text:
    heading = Text(f"{row.index}", style="bold")
    if prompt.category:
        heading.append(f"  {showable(prompt.category)}", style="cyan")
    said = f"  {counted(len(row.output_ids), 'token')} in {counted(row.rounds, 'round')}"
    said += f", end: {row.finish_reason}"
    if row.drafted:
        said += f", {row.accepted} of {row.drafted} draft tokens accepted"
    heading.append(said, style="not bold")
    if row.error:
        heading.append(f"  {showable(row.error)}", style="red")
    return heading


def _costs(header: RunHeader, summary: Summary) -> Table:
    totals, settings = summary.totals, header.settings
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    phases = totals.seconds_by_phase
    shares = ", ".join(
        f"{name} {getattr(phases, name) / totals.seconds:.1%}"
        for name in phases.__struct_fields__
        if totals.seconds and getattr(phases, name)
    )
    names = " + ".join(name for name in (header.pair.target, header.pair.draft) if name)
    lines = {
        "method": f"{header.method}, B={settings.get('batch_size')} "
        f"K={settings.get('draft_tokens')}, {settings.get('device')} {settings.get('dtype')}",
        "pair": names,
        "tokens": f"{totals.output_tokens} in {totals.seconds:.2f} s: "
        f"{totals.tokens_per_second:.1f} a second",
        "rounds": f"{totals.rounds}, accepted {totals.accepted_per_row_round:.2f} a row and round",
        "time": shares or "none",
        "realigned": f"{totals.realign_share:.2%} of the time, {_bytes(totals.realign_bytes)}",
    }
    if totals.grouped_rounds or totals.fallback_rounds:
        lines["groups"] = f"{counted(totals.grouped_rounds, 'round')}, "
        lines["groups"] += counted(totals.fallback_rounds, "fallback")
    for name, text in lines.items():
        table.add_row(name, Text(text))
    if summary.interrupted:
        table.add_row("", Text("interrupted: some rows were still running", style="yellow"))
    return table


def _bytes(count: int) -> str:
    size, units = float(count), ["B", "kB", "MB", "GB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.3g} {units[0]}"
