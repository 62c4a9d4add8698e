"""`distill`: make a draft for a target that has none."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from engine.distill.run import Stage


def parse_data(values: tuple[str, ...]) -> tuple[tuple[Path, float], ...]:
    """`FILE` or `FILE=WEIGHT`, as often as given."""
    found: list[tuple[Path, float]] = []
    for value in values:
        name, _, weight = value.rpartition("=")
        try:
            found.append((Path(name), float(weight)) if name else (Path(value), 1.0))
        except ValueError:
            found.append((Path(value), 1.0))
    for path, share in found:
        if not path.is_file():
            raise click.BadParameter(f"no such file: {path}", param_hint="--data")
        if not 0 < share <= 100:
            raise click.BadParameter("a weight lies above 0, up to 100", param_hint="--data")
    return tuple(found)


@click.command("distill")
@click.option(
    "--target", required=True, metavar="PATH_OR_ID", help="The model to make a draft for."
)
@click.option(
    "--layers",
    required=True,
    metavar="N|LIST",
    help="Layers to keep: a number, or indices such as 0-2,24-29.",
)
@click.option(
    "--eagle-layers",
    default="",
    metavar="LIST",
    help="Make an EAGLE-style draft: the target's layers whose hidden states it reads, "
    " such as 2,14,26 with --layers 27-29. It runs in this program alone.",
)
@click.option("--hours", required=True, type=click.FloatRange(min=0, min_open=True))
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--data",
    multiple=True,
    metavar="FILE[=WEIGHT]",
    help="Token data (safetensors: tokens, offsets, answer_start), seen WEIGHT times an epoch. "
    "Without it the target writes its own.",
)
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@click.option("--hot-vocab", default=8192, show_default=True, type=click.IntRange(min=2))
@click.option(
    "--rows",
    default=4096,
    show_default=True,
    type=click.IntRange(min=2),
    help="Answers that the target writes where no --data is given.",
)
@click.option(
    "--batch", default=1280, show_default=True, type=click.IntRange(min=16), help="Tokens per step."
)
@click.option(
    "--lr",
    default=7e-4,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Peak learning rate.",
)
@click.option(
    "--hidden-weight",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Weight of the distance to the target's hidden state.",
)
@click.option(
    "--max-length",
    default=384,
    show_default=True,
    type=click.IntRange(min=8),
    help="Longer sequences are cut.",
)
@click.option(
    "--validate-every", default=200, show_default=True, type=click.IntRange(min=1), metavar="STEPS"
)
@click.option("--weights", default="int8", show_default=True, type=click.Choice(["int8", "bf16"]))
@click.option("--seed", default=0, show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option("--dtype", default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="Threads on the CPU.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def distill(**given: Any) -> int:
    """Make a draft for a target, by self-distillation.

    The target writes answers to questions (or token data is given); some of its own layers are
    trained to predict what it would say. Ctrl-C ends the training early and still writes the
    draft; after a kill, --resume loses at most a minute.
    """
    data = parse_data(given["data"])
    from engine.config.device import use_threads
    from engine.distill.run import DistillSettings
    from engine.distill.run import distill as run

    use_threads(given["threads"])
    settings = DistillSettings(
        target=given["target"],
        layers=given["layers"],
        reads=given["eagle_layers"],
        hours=given["hours"],
        out=given["out"],
        data=data,
        resume=given["resume"],
        hot_vocab=given["hot_vocab"],
        rows=given["rows"],
        batch=given["batch"],
        learning_rate=given["lr"],
        hidden_weight=given["hidden_weight"],
        max_length=given["max_length"],
        validate_every=given["validate_every"],
        int8=given["weights"] == "int8",
        seed=given["seed"],
        device=given["device"],
        dtype=given["dtype"],
    )
    stopping = _stop_on_interrupt()
    with Screen(quiet=given["quiet"]) as screen:
        out = run(settings, screen.tell, stopping)
    _print_figures(screen.figures, out)
    return 130 if stopping() else 0


def _stop_on_interrupt() -> Any:
    """A first Ctrl-C asks the run to end after its step; a second one ends it at once."""
    asked = False

    def note(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, note)
    return lambda: asked


STAGES = {
    "load": "loading the target",
    "write": "the target writes",
    "held-out": "answers to the held-out prompts",
    "bridge": "bridging the gap",
    "train": "training",
}


class Screen:
    """Progress on stderr: the stage, how far it is, the time that is left."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = Console(stderr=True, quiet=quiet)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=quiet,
        )
        self.stage = ""
        self.task: Any = None
        self.figures: dict[str, Any] = {}

    def __enter__(self) -> Screen:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def tell(self, stage: Stage) -> None:
        """Show a piece of news."""
        self.figures = stage.figures or self.figures
        if stage.name != self.stage and self.task is not None:
            self.progress.update(self.task, total=1, completed=1)
        if stage.name == "done":
            return
        if stage.name != self.stage:
            self.stage = stage.name
            name = STAGES.get(stage.name, stage.name)
            self.task = self.progress.add_task(name, total=None, note="")
        if stage.note:
            self.console.print(stage.note)
        note = ""
        news = stage.training
        if news is not None:
            note = f"step {news.step}, epoch {news.epoch + 1}, loss {news.loss:.3f}"
            if news.validation is not None:
                for name, found in news.validation.items():
                    self.console.print(f"step {news.step}, {name}: {_line(found)}")
        total = stage.total or None
        self.progress.update(self.task, completed=stage.done, total=total, note=note)


def _line(found: dict[str, Any]) -> str:
    per_round = ", ".join(f"K={k}: {value:.2f}" for k, value in found["tokens_per_round"].items())
    return (
        f"agreement {found['agreement']:.3f}, overlap {found['overlap']:.3f}, "
        f"tokens per round {per_round}"
    )


def _print_figures(figures: dict[str, Any], out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="the draft, on tokens it was not trained on")
    validation: dict[str, Any] = figures.get("validation", {})
    table.add_column("")
    for name in validation:
        table.add_column(name, justify="right")
    for key in ("tokens", "agreement", "overlap"):
        table.add_row(key, *(f"{found[key]}" for found in validation.values()))
    ks = [k for found in validation.values() for k in found["tokens_per_round"]]
    for k in dict.fromkeys(ks):
        values = (f"{found['tokens_per_round'][k]:.2f}" for found in validation.values())
        table.add_row(f"tokens per round, K = {k}", *values)
    console = Console()
    console.print(table)
    console.print(f"draft written to {out}")
