"""What a run is asked to do. Plain values, checked once, shared by every command."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.config.errors import UserError
from engine.config.faults import FAULTS
from engine.config.methods import BROKEN_METHODS, check_method

DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")

FinishReason = Literal["eos", "length", "context", "batch", "error"]

LIMITS = {
    "batch_size": (1, 1024),
    "draft_tokens": (0, 64),
    "window": (1, 4096),
    "max_new_tokens": (0, 131072),
}
"""Smallest and largest accepted value of each whole-number setting."""

LARGEST_AUTO = 8
"""The largest K that `--draft-tokens auto` considers."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How a token is chosen from logits. `temperature == 0` is greedy decoding."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run (one lane). Field names are the options' names."""

    method: str = "eqspec"
    batch_size: int = 4
    draft_tokens: int | Literal["auto"] = 5
    window: int = 24
    max_new_tokens: int = 128
    sampling: Sampling = Sampling()
    device: str = "auto"
    dtype: str = "auto"
    threads: int = 0
    strict: bool = False
    prompt_lookup: bool | None = None
    """Whether a row's own text is drafted where it repeats itself, and the pair's n-grams where
    they are all but sure, before the draft model is asked (`engine.drafting.hybrid`). None: as the
    pair says."""
    cuda_graphs: bool = False
    """Whether slotspec's forwards are recorded and replayed (`engine.models.cuda_graphs`)."""
    audit: bool = False
    fault: str = ""
    force_accept: float | None = None
    """Rate at which draft tokens are accepted by a seeded pattern in place of the comparison."""
    force_spread: float = 0.0
    """How far the rows' own rates lie about it."""
    inspect: bool = False
    """Whether the records say how each token was verified: probabilities and best tokens."""

    def check(self) -> Settings:
        """Return self when every value can be used.

        Raises:
            UserError: one line that names the option, the value and what is allowed.
        """
        check_method(self.method)
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if name == "draft_tokens" and value == "auto":
                continue
            if not isinstance(value, int) or not low <= value <= high:
                option = "--" + name.replace("_", "-")
                raise UserError(f"{option} must be between {low} and {high}, not {value}")
        _check_name("--device", self.device.split(":")[0], DEVICES)
        _check_name("--dtype", self.dtype, DTYPES)
        if self.cuda_graphs and self.device in ("cpu", "mps"):
            raise UserError(f"--cuda-graphs needs a CUDA device, not --device {self.device}")
        sampling = self.sampling
        if not 0.0 <= sampling.temperature <= 100.0:
            raise UserError(f"--temperature must be between 0 and 100, not {sampling.temperature}")
        if sampling.top_k < 0:
            raise UserError(f"--top-k must be 0 (off) or more, not {sampling.top_k}")
        if not 0.0 < sampling.top_p <= 1.0:
            raise UserError(f"--top-p must be above 0 and at most 1, not {sampling.top_p}")
        if self.fault:
            _check_name("fault", self.fault, tuple(FAULTS))
            if self.method != "eqspec" or self.strict:
                raise UserError("the fault lab works on eqspec, without --strict")
        if not sampling.greedy and self.method in BROKEN_METHODS:
            raise UserError(f"{self.method} is published for greedy decoding: use --temperature 0")
        self._check_forcing()
        return self

    def _check_forcing(self) -> None:
        rate, spread = self.force_accept, self.force_spread
        if rate is None:
            if spread:
                raise UserError("--force-spread needs --force-accept")
            return
        if not 0.0 <= rate <= 1.0:
            raise UserError(f"--force-accept must be between 0 and 1, not {rate}")
        widest = min(rate, 1.0 - rate)
        if not 0.0 <= spread <= widest + 1e-9:
            raise UserError(
                f"--force-spread must be between 0 and {widest:g} about a rate of {rate:g}, "
                f"not {spread:g}"
            )
        if not self.sampling.greedy:
            raise UserError("--force-accept stands in for greedy comparison: use --temperature 0")
        if self.fault:
            raise UserError("the fault lab compares with the target's own text: no --force-accept")

    @property
    def largest_draft_tokens(self) -> int:
        """The largest K that these settings allow."""
        return LARGEST_AUTO if self.draft_tokens == "auto" else self.draft_tokens


def _check_name(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UserError(f"unknown {option} '{value}'; choose one of {', '.join(allowed)}")
