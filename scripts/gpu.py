"""The whole check and benchmark on a GPU in one go: one table, one JSON file.

    python scripts/gpu.py [--quick] [--minutes 7] [--json gpu.json]

Outputs: every method against decoding each row alone, in float32, and in bfloat16 under
strict, where slotspec must be equal to the last token; the same with CUDA graphs. Time: every
method over batch sizes, with and without graphs, at a forced rate of acceptance. The models
are random weights in the paper's shapes (`gpu_models.py`), made on the device.

`--device cpu` runs the same on tiny shapes: a check of this script, and of nothing else.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec
import torch
from gpu_models import SHAPES, Shape, largest_shape, sharing_pair, small_draft_pair, target_of
from gpu_report import Line, Report, table
from rich.console import Console

import engine.runs.run
from engine.config.methods import BROKEN_METHODS, CORRECT_METHODS
from engine.config.settings import Settings
from engine.config.versions import versions
from engine.evaluation.bench import Sample, measure
from engine.evaluation.oracle import Oracle
from engine.evaluation.verify import MethodVerdict, verify
from engine.pairs.load import Pair
from engine.records.schema import Prompt

SCHEMA = "batchspec/gpu/1"
RATE, SPREAD = 0.7, 0.2
"""Synthetic acceptance: of a draft token, and how far rows differ."""

# ---- outputs -------------------------------------------------------------------------------


def check_outputs(report: Report, pair: Pair, stage: str, settings: Settings, count: int) -> None:
    """Every method against the oracle, then slotspec with graphs against the same answers."""
    prompts = random_prompts(count, pair.target.vocabulary, longest=48)
    oracle = Oracle(pair)

    def compared(method: str, graphs: bool = False) -> Line:
        chosen = msgspec.structs.replace(settings, cuda_graphs=graphs)
        found = verify(pair, chosen, [method], prompts, oracle=oracle)
        return outcome(method, settings.strict, found.methods[method])

    broken = () if settings.strict else BROKEN_METHODS
    size = settings.batch_size
    for method in (*CORRECT_METHODS, *broken):
        report.case(stage, partial(compared, method), method=method, batch_size=size)
    recorded = partial(compared, "slotspec", graphs=True)
    report.case(stage, recorded, method="slotspec", graphs=True, batch_size=size)


def outcome(method: str, strict: bool, found: MethodVerdict) -> Line:
    """What a comparison says. A correct method may differ by rounding alone, and slotspec
    under strict not even by that."""
    causes = [divergence.cause for divergence in found.divergences]
    numeric = causes.count("numeric")
    wrong = len(causes) - numeric + len(found.errors)
    if strict and method in ("slotspec", "autoregressive"):
        wrong += numeric
    if method in BROKEN_METHODS:
        result = "broken, as published" if causes else "equal, this time"
    else:
        result = "WRONG" if wrong else "ok"
    return {
        "result": result,
        "exact": found.exact,
        "total": found.total,
        "numeric": numeric,
        "accepted": found.accepted_per_row_round,
        "errors": list(found.errors.values()),
    }


# ---- time ----------------------------------------------------------------------------------


def check_time(
    report: Report, pair: Pair, settings: Settings, sizes: Sequence[int], repeats: int
) -> None:
    """Tokens a second, and where the time goes, over batch sizes."""
    for size in sizes:
        prompts = random_prompts(2 * size, pair.target.vocabulary, longest=96)
        base = 0.0
        for method, tokens, graphs in timed_methods(settings.draft_tokens):
            chosen = msgspec.structs.replace(
                settings,
                method=method,
                batch_size=size,
                window=3 * size,
                draft_tokens=tokens,
                cuda_graphs=graphs,
            )
            work = partial(timed, pair, chosen, prompts, repeats, base)
            facts = {"method": method, "batch_size": size, "draft_tokens": tokens}
            line = report.case("time", work, graphs=graphs, **facts)
            base = base or line.get("tokens_per_second", 0.0)


def timed(
    pair: Pair, settings: Settings, prompts: Sequence[Prompt], repeats: int, base: float
) -> Line:
    """One run to warm up, and those that count."""
    measure(pair, msgspec.structs.replace(settings, max_new_tokens=8), prompts)
    return figures([measure(pair, settings, prompts) for _ in range(repeats)], base)


def timed_methods(draft_tokens: Any) -> list[tuple[str, Any, bool]]:
    """Method, K and graphs; the first is what the others are compared with."""
    speculating = [name for name in CORRECT_METHODS if name != "autoregressive"]
    return [
        ("autoregressive", 0, False),
        *((name, draft_tokens, False) for name in speculating),
        ("slotspec", draft_tokens, True),
        ("slotspec", 0, False),
        ("slotspec", 0, True),
    ]


def figures(samples: list[Sample], base: float) -> Line:
    """The median run's, as far as the table shows them."""
    rates = [sample.tokens_per_second for sample in samples]
    middle = min(samples, key=lambda s: abs(s.tokens_per_second - statistics.median(rates)))
    phases = middle.seconds_by_phase
    speed = middle.tokens_per_second
    return {
        "result": "ok",
        "tokens_per_second": speed,
        "lowest": min(rates),
        "highest": max(rates),
        "wall_tokens_per_second": middle.output_tokens / middle.wall_seconds,
        "speedup": speed / base if base else 1.0,
        "accepted": middle.accepted_per_row_round,
        "rounds": middle.rounds,
        "seconds_by_phase": msgspec.to_builtins(phases),
        "shares": {name: getattr(phases, name) / phases.total for name in phases.__struct_fields__},
        "realign_bytes": middle.realign_bytes,
        "peak_memory_bytes": middle.peak_memory_bytes,
    }


def random_prompts(count: int, vocabulary: int, longest: int) -> tuple[Prompt, ...]:
    """Seeded ids, of unequal length."""
    chance = random.Random(count)
    lengths = [chance.randint(longest // 4, longest) for _ in range(count)]
    return tuple(
        Prompt(index=i, ids=tuple(chance.randrange(3, vocabulary) for _ in range(length)))
        for i, length in enumerate(lengths)
    )


# ---- all of it -----------------------------------------------------------------------------


def check(report: Report, device: torch.device, shape: Shape, *, quick: bool, repeats: int) -> None:
    """Every stage, whatever becomes of the others."""
    rows, tokens = (4, 10) if quick else (8, 32)
    settings = Settings(batch_size=4, draft_tokens=4, window=8, max_new_tokens=tokens)
    for dtype, strict in ((torch.float32, False), (torch.bfloat16, True)):
        stage = f"outputs {str(dtype).removeprefix('torch.')}{' strict' if strict else ''}"
        target = made(report, stage, shape, device, dtype)
        if target is not None:
            chosen = msgspec.structs.replace(settings, strict=strict)
            check_outputs(report, sharing_pair(target), stage, chosen, rows)
    if target is not None:
        pair = small_draft_pair(target, shape)
        forced = msgspec.structs.replace(
            settings,
            draft_tokens=5,
            max_new_tokens=8 if quick else 64,
            force_accept=RATE,
            force_spread=SPREAD,
        )
        check_time(report, pair, forced, (1, 4) if quick else (1, 4, 8, 16), repeats)


def made(report: Report, stage: str, shape: Shape, device: torch.device, dtype: Any) -> Any | None:
    """The target, once the last one's memory is free; None where it cannot be made."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    targets = []

    def make() -> Line:
        targets.append(target_of(shape, device, dtype))
        size = sum(weight.numel() for weight in targets[0].parameters())
        return {"result": f"{size / 1e9:.2f} billion random ones", "parameters": size}

    report.case(stage, make, method="weights")
    return targets[0] if targets else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu [cuda]")
    parser.add_argument("--shape", choices=SHAPES, help="[the largest for which there is memory]")
    parser.add_argument("--quick", action="store_true", help="fewer rows, tokens and sizes")
    parser.add_argument("--repeats", type=int, default=2, help="runs that are timed [2]")
    parser.add_argument("--minutes", type=float, default=7.0, help="begin no case after these [7]")
    parser.add_argument("--json", type=Path, default=Path("gpu.json"), help="[gpu.json]")
    given = parser.parse_args(arguments)
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no CUDA device found; --device cpu checks the script itself", file=sys.stderr)
        return 2
    if device.type != "cuda":
        vars(engine.runs.run)["require_graphs"] = lambda models: None
    name = given.shape or largest_shape(device)
    report = Report(given.minutes, recorded=device.type == "cuda")
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    check(
        report, device, SHAPES[name], quick=given.quick, repeats=1 if given.quick else given.repeats
    )
    title = (
        f"{machine}, torch {torch.__version__}, {SHAPES[name].what} shapes, random weights; "
        f"time: acceptance forced at {RATE} ± {SPREAD}; {report.seconds:.0f} s"
    )
    facts = {
        "schema": SCHEMA,
        "machine": machine,
        "shape": name,
        "models": {"target": SHAPES[name].target._asdict(), "draft": SHAPES[name].draft._asdict()},
        "forced_acceptance": {"rate": RATE, "spread": SPREAD},
        "versions": versions(),
        "seconds": round(report.seconds, 1),
        "lines": report.lines,
    }
    given.json.write_text(json.dumps(facts, indent=2) + "\n")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 180)
    console.print(table(report, title))
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
