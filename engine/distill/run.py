"""The whole of it: data, labels, training, package. Each stage goes on where it stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from engine.config.device import resolve_device, resolve_dtype
from engine.config.errors import RunError, UserError
from engine.config.replace_file import NAME, replace_with
from engine.distill.batches import Source
from engine.distill.chat import answer_marker, eos_ids, question_ids
from engine.distill.fit_fusion import fit_fusion
from engine.distill.generate import Request, generate
from engine.distill.heal import bridge
from engine.distill.held_out import all_prompts
from engine.distill.labels import Labels
from engine.distill.loading import load_target
from engine.distill.loss import LossWeights
from engine.distill.selfdata import WritingPlan, write_data
from engine.distill.tokens import TokenData, load_tokens, save_tokens
from engine.distill.train import EagleTrainer, Progress, Trainer, TrainPlan
from engine.distill.validate import validate
from engine.models.cut_draft import build_draft, check_target, hot_vocabulary, parse_layers
from engine.models.draft_format import save_compact
from engine.models.eagle_format import build_eagle_draft, save_eagle_draft


@dataclass(frozen=True)
class DistillSettings:
    """What a user asks for."""

    target: str
    layers: str
    hours: float
    out: Path
    data: tuple[tuple[Path, float], ...] = ()  # files and how often each is seen in an epoch
    resume: bool = False
    hot_vocab: int = 8192
    seed: int = 0
    batch: int = 2048  # tokens per step
    learning_rate: float = 1e-3
    hidden_weight: float = 1.0
    rows: int = 4096  # answers that the target writes where no data is given
    writing_share: float = 0.4  # of the hours, at most, for writing them
    max_length: int = 384
    device: str = "auto"
    dtype: str = "auto"
    int8: bool = True
    validate_every: int = 250
    checkpoint_seconds: float = 45.0
    max_steps: int | None = None
    reads: str = ""  # layers whose states an EAGLE-style draft reads; "" = an ordinary draft


@dataclass(frozen=True)
class Stage:
    """News of a run: a stage and how far it has come, with the trainer's words where it trains."""

    name: str  # load, write, held-out, label, train, done
    done: float = 0.0
    total: float = 0.0
    note: str = ""
    training: Progress | None = None
    figures: dict[str, Any] = field(default_factory=dict)


Report = Callable[[Stage], None]


class Stopped(RunError):
    """The run was stopped before there was anything to package. Exit status 130."""

    exit_code = 130


def distill(
    settings: DistillSettings, report: Report | None = None, stop: Callable[[], bool] | None = None
) -> Path:
    """Make a draft for a target; the directory of the finished draft.

    Every stage leaves its result in ``out/work`` and is skipped when that is there, so that a run
    that was killed loses at most the seconds since its last checkpoint.
    """
    tell: Report = report or (lambda stage: None)
    if settings.hours <= 0 and settings.max_steps is None:
        raise UserError("--hours must be above 0")
    work = settings.out / "work"
    if (work / NAME).exists() and not settings.resume:
        raise UserError(
            f"{settings.out} holds an earlier run: add --resume, or choose another --out"
        )
    tell(Stage("load"))
    device = resolve_device(settings.device)
    target, tokenizer = load_target(settings.target, device, resolve_dtype(settings.dtype, device))
    return distill_model(target, tokenizer, settings, tell, stop)


def distill_model(
    target: Any,
    tokenizer: Any | None,
    settings: DistillSettings,
    tell: Report = lambda stage: None,
    stop: Callable[[], bool] | None = None,
) -> Path:
    """The same for a target in memory. Without a tokenizer, token data must be given."""
    check_target(target)
    layers = parse_layers(settings.layers, len(target.model.layers))
    reads = parse_reads(settings.reads, len(target.model.layers))
    check_reads(layers, reads)
    work = settings.out / "work"
    work.mkdir(parents=True, exist_ok=True)
    choices = {"layers": layers, "hot_vocab": settings.hot_vocab, "seed": settings.seed}
    remember(work, choices | ({"reads": reads} if reads else {}))
    began = time.monotonic()
    eos = eos_ids(target, tokenizer)

    data = gather(target, tokenizer, settings, work, tell, stop)
    hot_ids = hot_tokens(target, [d for d, _ in data], settings, work, eos)
    draft: Any = (
        build_eagle_draft(target, layers, reads, hot_ids)
        if reads
        else build_draft(target, layers, hot_ids)
    )

    sources, held_out = [], []
    for number, (tokens, weight) in enumerate(data):
        name = f"label {number + 1}/{len(data)}"
        labels = label(target, tokens, reads, settings, work, name, tell, stop)
        train_on, held = split(len(tokens), settings.seed)
        sources.append(Source(labels, train_on, weight))
        held_out.append((labels, held))
    yard = None
    if tokenizer is not None:
        answers = held_out_answers(target, tokenizer, work, eos, tell)
        yard = label(target, answers, reads, settings, work, "label held-out", tell, stop)
    if stop is not None and stop():
        raise Stopped("stopped before the training; --resume goes on from here")
    if not (work / NAME).exists():
        tell(Stage("bridge"))
        if reads:
            fit_fusion(draft, sources[-1].labels, layers[0])
        else:
            bridge(target, draft, layers, data[-1][0], limit=settings.max_length)
    head = target.get_output_embeddings().weight

    def figures() -> dict[str, Any]:
        found = {"held_out": validate(draft, *_pair(held_out[-1], head, hot_ids)).as_dict()}
        if yard is not None:
            found["prompts"] = validate(draft, yard, head, hot_ids).as_dict()
        return found

    plan = TrainPlan(
        seconds=max(1.0, settings.hours * 3600 - (time.monotonic() - began)),
        learning_rate=settings.learning_rate,
        budget=settings.batch,
        loss=LossWeights(hidden=settings.hidden_weight),
        checkpoint_seconds=settings.checkpoint_seconds,
        validate_every=settings.validate_every,
        max_steps=settings.max_steps,
        seed=settings.seed,
    )
    trainer = (EagleTrainer if reads else Trainer)(draft, sources, eos, plan, work)
    if settings.resume and trainer.resume():
        tell(Stage("train", note=f"resumed at step {trainer.step}"))
    total = sum(len(tokens.tokens) for tokens, _ in data)
    tell(Stage("train", note=memory_note(target, trainer, total, settings)))
    trainer.run(
        validate=figures,
        progress=lambda p: tell(Stage("train", p.elapsed, p.seconds, training=p)),
        stop=stop,
    )
    final = {
        "validation": figures(),
        "training": {
            "tokens": total,
            "steps": trainer.step,
            "epochs": trainer.epoch,
            "seconds": round(trainer.elapsed),
            "dtype": str(draft.lm_head.weight.dtype).removeprefix("torch."),
        },
    }
    save = save_eagle_draft if reads else save_compact
    save(settings.out, draft, layers, hot_ids, int8=settings.int8, figures=final)
    tell(Stage("done", figures=final))
    return settings.out


def _pair(
    held: tuple[Labels, list[int]], head: Any, hot: Any
) -> tuple[Labels, Any, Any, list[int]]:
    return held[0], head, hot, held[1]


def parse_reads(text: str, total: int) -> list[int]:
    """Indices such as ``2,14,26``; one alone is an index too. Empty: none."""
    if not text:
        return []
    return parse_layers(f"{text}-{text}" if text.isdigit() else text, total)


def check_reads(layers: list[int], reads: list[int]) -> None:
    """An EAGLE-style draft keeps the target's last layers, and reads the one in front of them."""
    if reads and layers[0] - 1 not in reads:
        raise UserError(
            f"--eagle-layers must name layer {layers[0] - 1}, in front of the first that is kept"
            if layers[0]
            else "--eagle-layers goes with late layers, as in --layers 27-29 --eagle-layers 2,14,26"
        )


def remember(work: Path, choices: dict[str, Any]) -> None:
    """Keep what a run was started with; a resumed run must not differ in it."""
    path = work / "settings.json"
    if not path.exists():
        replace_with(path, lambda p: p.write_text(json.dumps(choices) + "\n"))
        return
    earlier: dict[str, Any] = json.loads(path.read_text())
    unlike = [name for name, value in choices.items() if earlier.get(name) != value]
    if unlike:
        name = unlike[0]
        raise UserError(
            f"{work.parent} holds a run with other {name}: {earlier.get(name)}; "
            "give the same, or choose another --out"
        )


def split(count: int, seed: int) -> tuple[list[int], list[int]]:
    """Sequences to train on, and up to 24 (a twentieth at most) that are held out."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    held = min(24, max(1, count // 20)) if count > 1 else 0
    return sorted(order[held:]), sorted(order[:held])


def gather(
    target: Any,
    tokenizer: Any | None,
    settings: DistillSettings,
    work: Path,
    tell: Report,
    stop: Callable[[], bool] | None,
) -> list[tuple[TokenData, float]]:
    """The token data: from files, or written by the target."""
    vocabulary = target.get_output_embeddings().weight.shape[0]
    marker = [] if tokenizer is None else answer_marker(tokenizer)
    if settings.data:
        return [(load_tokens(p, vocabulary).find_answers(marker), w) for p, w in settings.data]
    if tokenizer is None:
        raise UserError("a target without a tokenizer cannot write its own data: give --data")
    plan = WritingPlan(
        rows=settings.rows, seed=settings.seed, save_seconds=settings.checkpoint_seconds
    )
    finished = work / "written.done"
    path = work / "written.safetensors"
    if not finished.exists():
        seconds = settings.hours * 3600 * settings.writing_share
        tell(Stage("write", 0, plan.rows))
        data = write_data(
            target,
            tokenizer,
            path,
            plan,
            seconds=seconds,
            progress=lambda done, total: tell(Stage("write", done, total)),
            stop=stop,
        )
        if len(data) < 2:
            raise UserError("the target wrote no data in the time given: raise --hours")
        finished.write_text(f"{len(data)} sequences\n")
    return [(load_tokens(path, vocabulary), 1.0)]


def hot_tokens(
    target: Any, data: list[TokenData], settings: DistillSettings, work: Path, eos: set[int]
) -> torch.Tensor:
    """The hot ids: counted once and kept, for a checkpoint belongs to its head."""
    path = work / "hot.safetensors"
    if path.exists():
        return load_file(path)["hot_ids"].long()
    size = target.get_output_embeddings().weight.shape[0]
    counts = torch.zeros(size, dtype=torch.long)
    for tokens in data:
        counts += torch.bincount(tokens.tokens.long(), minlength=size)
    hot = hot_vocabulary(counts, settings.hot_vocab, eos)
    replace_with(path, lambda p: save_file({"hot_ids": hot.to(torch.int32)}, p))
    return hot


def label(
    target: Any,
    data: TokenData,
    reads: list[int],
    settings: DistillSettings,
    work: Path,
    name: str,
    tell: Report,
    stop: Callable[[], bool] | None,
) -> Labels:
    hidden = target.config.hidden_size
    labels = Labels(work / "labels", data, hidden, settings.max_length, reads)
    labels.fill(target, progress=lambda done, total: tell(Stage(name, done, total)), stop=stop)
    return labels


def held_out_answers(
    target: Any, tokenizer: Any, work: Path, eos: set[int], tell: Report
) -> TokenData:
    """The target's greedy answers to the prompts that nothing is trained on."""
    path = work / "held_out.safetensors"
    vocabulary = target.get_output_embeddings().weight.shape[0]
    if not path.exists():
        requests = [Request(question_ids(tokenizer, prompt), 96) for _, prompt in all_prompts()]
        found: dict[int, list[int]] = {}
        for index, new in generate(target, requests, eos):
            found[index] = new
            tell(Stage("held-out", len(found), len(requests)))
        rows = [requests[i].prompt + found[i] for i in range(len(requests))]
        save_tokens(TokenData.of(rows, [len(r.prompt) for r in requests]), path)
    return load_tokens(path, vocabulary)


def memory_note(target: Any, trainer: Trainer, tokens: int, settings: DistillSettings) -> str:
    """What the training will take, said before it begins."""
    weights = sum(p.numel() * p.element_size() for p in target.parameters())
    hot = trainer.draft.lm_head.weight.shape[0]
    size = trainer.live[0].element_size()
    config = target.config
    wide = 12 * config.hidden_size + 5 * getattr(
        config, "intermediate_size", 4 * config.hidden_size
    )
    activations = settings.batch * (hot * 16 + len(trainer.draft.model.layers) * wide * size)
    disk = tokens * trainer.sources[0].labels.states.shape[1] * 2
    return (
        f"memory about {(weights + trainer.memory_bytes() + activations) / 2**30:.1f} GiB, "
        f"labels {disk / 2**30:.2f} GiB on the disk"
    )
