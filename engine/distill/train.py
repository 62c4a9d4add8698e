"""The training loop: bounded by time, checkpointed, resumable to the step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.config.errors import UserError
from engine.config.replace_file import load_checkpoint, save_checkpoint
from engine.distill.batches import Batch, Source, load_batch, plan_epoch
from engine.distill.labels import hidden_states
from engine.distill.loss import LossWeights, SoftLabelLoss
from engine.distill.unroll import unroll


@dataclass(frozen=True)
class TrainPlan:
    """How a draft is trained. ``seconds`` counts the work of all runs that resume each other."""

    seconds: float
    learning_rate: float = 1e-3
    warm_up: float = 0.03  # share of the time
    hold: float = 0.3  # share of the time after which the decay begins
    floor: float = 0.02  # of the peak rate, at the end
    budget: int = 2048  # padded tokens per step
    clip: float = 1.0
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    loss: LossWeights = field(default_factory=LossWeights)
    checkpoint_seconds: float = 45.0
    validate_every: int = 250
    max_steps: int | None = None
    seed: int = 0
    ahead: int = 3  # steps that an EAGLE-style draft is unrolled for
    fade: float = 0.8  # weight of each of these steps against the one before


@dataclass(frozen=True)
class Progress:
    """What a run tells while it runs."""

    step: int
    epoch: int
    elapsed: float
    seconds: float
    tokens_per_second: float
    loss: float
    learning_rate: float
    validation: dict[str, Any] | None = None


def rate(plan: TrainPlan, share: float) -> float:
    """Trapezoid over the share of the time: linear up, flat, linear down to the floor."""
    if share < plan.warm_up:
        return plan.learning_rate * max(0.02, share / plan.warm_up)
    if share < plan.hold:
        return plan.learning_rate
    left = max(0.0, (1 - share) / max(1e-9, 1 - plan.hold))
    return plan.learning_rate * (plan.floor + (1 - plan.floor) * left)


class Trainer:
    """A draft in the compute dtype, and its float32 masters with AdamW's moments."""

    def __init__(
        self, draft: Any, sources: Sequence[Source], eos: set[int], plan: TrainPlan, directory: Path
    ) -> None:
        self.draft, self.sources, self.eos, self.plan = draft, list(sources), eos, plan
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.names, self.live = zip(
            *((n, p) for n, p in draft.named_parameters() if p.requires_grad), strict=True
        )
        self.masters = [
            p.detach().to(torch.float32, copy=True).requires_grad_(True) for p in self.live
        ]
        self.optimizer = torch.optim.AdamW(
            self.masters,
            lr=plan.learning_rate,
            betas=plan.betas,
            weight_decay=plan.weight_decay,
            fused=self.live[0].device.type in ("cpu", "cuda"),
        )
        self.loss = SoftLabelLoss(draft.lm_head.weight, plan.loss)
        self.step = self.epoch = self.place = 0
        self.elapsed = 0.0
        self.history: list[dict[str, Any]] = []

    def memory_bytes(self) -> int:
        """What the draft, its masters, gradients and moments take; activations come on top."""
        elements = sum(int(p.numel()) for p in self.live)
        return elements * (2 * int(self.live[0].element_size()) + 16)

    def state(self) -> dict[str, Any]:
        return {
            "masters": {n: m.detach() for n, m in zip(self.names, self.masters, strict=True)},
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "epoch": self.epoch,
            "place": self.place,
            "elapsed": self.elapsed,
            "history": self.history,
            "data": [source.labels.data.key() for source in self.sources],
        }

    def save(self) -> None:
        save_checkpoint(self.directory, self.state())

    def resume(self) -> bool:
        """Go on from the last checkpoint, if there is one."""
        state = load_checkpoint(self.directory)
        if state is None:
            return False
        if list(state["masters"]) != list(self.names):
            raise UserError(f"the checkpoint in {self.directory} is of a draft with other layers")
        with torch.no_grad():
            for master, name in zip(self.masters, self.names, strict=True):
                master.copy_(state["masters"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.epoch, self.place = state["step"], state["epoch"], state["place"]
        self.elapsed, self.history = state["elapsed"], state["history"]
        if state["data"] != [source.labels.data.key() for source in self.sources]:
            self.epoch, self.place = self.epoch + 1, 0  # other data: a new epoch over it
        self.publish()
        return True

    def publish(self) -> None:
        """Bring the masters into the model that computes."""
        with torch.no_grad():
            for live, master in zip(self.live, self.masters, strict=True):
                live.copy_(master)

    def share(self) -> float:
        """How much of the run is over, by time or by steps, whichever is further."""
        steps = self.step / self.plan.max_steps if self.plan.max_steps else 0.0
        return min(1.0, max(steps, self.elapsed / max(1e-9, self.plan.seconds)))

    def train_step(self, pairs: list[tuple[int, int]]) -> tuple[float, int]:
        """One update; the loss and the number of tokens."""
        batch = load_batch(self.sources, pairs, self.plan.loss.prompt, self.eos)
        total, divergence = self.losses(batch)
        torch.autograd.backward(total)
        for master, live in zip(self.masters, self.live, strict=True):
            master.grad = None if live.grad is None else live.grad.float()
            live.grad = None
        torch.nn.utils.clip_grad_norm_(self.masters, self.plan.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.plan, self.share())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.publish()
        return float(divergence), int(batch.real.sum())

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The total, and the divergence alone."""
        return self.compare(hidden_states(self.draft, batch.ids), batch)

    def compare(self, states: Tensor, batch: Batch, first: int = 1) -> tuple[Tensor, Tensor]:
        """The draft's final states against the target's, from token `first` of each row on."""
        device = self.live[0].device
        chosen = (batch.real & (torch.arange(batch.ids.shape[1])[None] >= first)).to(device)
        truth = batch.states[..., : states.shape[-1]].to(device)
        found: tuple[Tensor, Tensor] = self.loss(
            states[chosen], truth[chosen], batch.weight.to(device)[chosen]
        )
        return found

    def run(
        self,
        *,
        validate: Callable[[], dict[str, Any]] | None = None,
        progress: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        """Train until the time is up, saving as it goes."""
        plan = self.plan
        smooth = 0.0
        saved = last = time.monotonic()
        over = False
        while not over:
            batches = plan_epoch(self.sources, plan.budget, plan.seed, self.epoch)
            if not batches:
                raise UserError("there is nothing to train on: the data holds no sequences")
            while self.place < len(batches):
                over = (
                    self.elapsed >= plan.seconds
                    or (plan.max_steps is not None and self.step >= plan.max_steps)
                    or (stop is not None and stop())
                )
                if over:
                    break
                loss, tokens = self.train_step(batches[self.place])
                self.step, self.place = self.step + 1, self.place + 1
                now = time.monotonic()
                took, last = now - last, now
                self.elapsed += took
                smooth = loss if smooth == 0 else 0.98 * smooth + 0.02 * loss
                figures = None
                if validate is not None and self.step % plan.validate_every == 0:
                    figures = validate()
                    self.history.append(
                        {"step": self.step, "elapsed": round(self.elapsed), **figures}
                    )
                if progress is not None:
                    speed = tokens / max(took, 1e-9)
                    lr = float(self.optimizer.param_groups[0]["lr"])
                    progress(
                        Progress(
                            self.step,
                            self.epoch,
                            self.elapsed,
                            plan.seconds,
                            speed,
                            smooth,
                            lr,
                            figures,
                        )
                    )
                if time.monotonic() - saved > plan.checkpoint_seconds:
                    self.save()
                    saved = time.monotonic()
            else:
                self.epoch, self.place = self.epoch + 1, 0
        self.save()


class EagleTrainer(Trainer):
    """An EAGLE-style draft is trained on its own states as well, some steps ahead."""

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        device = self.live[0].device
        totals, divergences = [], []
        steps = unroll(self.draft, batch.ids.to(device), batch.states.to(device), self.plan.ahead)
        for step, states in enumerate(steps):
            total, divergence = self.compare(states, batch, first=step + 1)
            totals.append(total * self.plan.fade**step)
            divergences.append(divergence)
        total = torch.stack(totals).sum()
        return total, divergences[0]
