"""Forwards of fixed shapes: the same outputs, computed or replayed to the letter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.config.errors import UserError
from engine.config.settings import Sampling, Settings
from engine.models import cuda_graphs as graphs
from engine.models.causal_lm import LanguageModel
from engine.models.cuda_graphs import FixedShapes, Shape, require_graphs
from engine.models.kv_cache import KVStore
from engine.pairs.load import Pair
from engine.records.schema import Prompt, RoundRecord, Summary
from engine.rounds.acceptance import Acceptance
from engine.rounds.packed_logits import Logits
from engine.runs.run import Run
from tests.families import VARIANTS, alone, pair_of
from tests.families import plain as architecture
from tests.models.test_eagle import eagle_pair
from tests.tape import HostWatch, Recorder, Tape
from tests.tiny import finished, mixed_prompts, prompts_of, tiny_pair

STEP = 8
PROMPTS = mixed_prompts(5)


@pytest.fixture(params=["computed", "replayed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Fixed shapes on the CPU: computed each time, or taken up once and replayed."""
    monkeypatch.setattr(graphs, "STEP", STEP)
    monkeypatch.setattr("engine.runs.run.require_graphs", lambda models: None)
    if request.param == "replayed":
        recording(monkeypatch)
    return str(request.param)


def recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "Graph", Tape)
    made = FixedShapes.__init__

    def records(self: FixedShapes, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.records = True

    monkeypatch.setattr(FixedShapes, "__init__", records)
    Tape.made = Tape.replayed = 0


@contextmanager
def watched() -> Iterator[list[Tensor]]:
    """The target's logits that were verified, as far as they mean something."""
    seen: list[Tensor] = []
    judge = Acceptance.judge

    def look(self: Acceptance, logits: Logits, draft_token_ids: Any, *rest: Any) -> Any:
        seen.extend(logits.whole[i, : n + 1].clone() for i, n in enumerate(draft_token_ids.counts))
        return judge(self, logits, draft_token_ids, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Acceptance, "judge", look)
        yield seen


def run(pair: Pair, prompts: tuple[Prompt, ...], **settings: Any) -> tuple[Any, list[Tensor]]:
    with watched() as seen:
        return finished(pair, prompts, **settings), seen


@pytest.mark.parametrize(
    ("kind", "strict", "batch_size", "draft_tokens"),
    [
        ("llama", False, 3, 4),
        ("llama", True, 3, 4),
        ("gpt2", False, 3, 4),
        ("gpt2", True, 1, 1),
        ("llama", False, 8, 0),
        ("llama", False, 3, "auto"),
    ],
)
def test_the_same_run_as_without(
    way: str, kind: str, strict: bool, batch_size: int, draft_tokens: int | str
) -> None:
    """Rows join and leave, grow through every width, and draft unevenly at their ends."""
    pair = tiny_pair(kind)
    settings = {
        "method": "slotspec",
        "max_new_tokens": 16,
        "strict": strict,
        "batch_size": batch_size,
        "draft_tokens": draft_tokens,
    }
    plain, expected = run(pair, PROMPTS, **settings)
    fixed, logits = run(pair, PROMPTS, cuda_graphs=True, **settings)
    assert fixed.outputs == plain.outputs
    assert fixed.reasons == plain.reasons
    assert not fixed.violations
    if draft_tokens != "auto":  # there K follows the clock
        assert len(logits) == len(expected)
        for mine, theirs in zip(logits, expected, strict=True):
            assert (mine - theirs).abs().max() < 1e-12
        accepted = [[row.accepted for row in record.rows] for record in fixed.rounds]
        assert accepted == [[row.accepted for row in record.rows] for record in plain.rounds]
    if way == "replayed":
        assert Tape.replayed > Tape.made > 0


def test_strict_is_equal_to_the_last_bit(way: str) -> None:
    pair = tiny_pair(dtype=torch.float32)
    settings = {"method": "slotspec", "max_new_tokens": 12, "strict": True, "batch_size": 3}
    _, expected = run(pair, PROMPTS, **settings)
    _, logits = run(pair, PROMPTS, cuda_graphs=True, **settings)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(logits, expected, strict=True))


def test_sampling_draws_the_same(way: str) -> None:
    pair = tiny_pair()
    settings = {
        "method": "slotspec",
        "max_new_tokens": 12,
        "batch_size": 3,
        "sampling": Sampling(temperature=0.8, top_k=20, seed=3),
    }
    plain = finished(pair, PROMPTS, **settings)
    fixed = finished(pair, PROMPTS, cuda_graphs=True, **settings)
    assert fixed.outputs == plain.outputs


def test_an_inspected_run_tells_the_same(way: str) -> None:
    """What was noted of the draft's steps is not overwritten by the next step's replay."""
    pair = tiny_pair()
    settings = {"method": "slotspec", "max_new_tokens": 12, "batch_size": 2, "inspect": True}
    plain = finished(pair, PROMPTS, **settings)
    fixed = finished(pair, PROMPTS, cuda_graphs=True, **settings)

    def facts(run: Any) -> list[Any]:
        return [[(row.tests, row.choice) for row in record.rows] for record in run.rounds]

    assert facts(fixed) == facts(plain)


def test_other_methods_run_as_always(way: str) -> None:
    pair = tiny_pair()
    for method in ("autoregressive", "eqspec", "exspec"):
        settings = {"method": method, "max_new_tokens": 8, "batch_size": 2}
        plain = finished(pair, PROMPTS, **settings)
        assert finished(pair, PROMPTS, cuda_graphs=True, **settings).outputs == plain.outputs


def test_a_restart_goes_on_in_a_cache_of_its_own(way: str) -> None:
    pair = tiny_pair()
    settings = Settings(
        method="slotspec", batch_size=3, max_new_tokens=12, cuda_graphs=True, draft_tokens=3
    )
    through = finished(pair, PROMPTS, method="slotspec", max_new_tokens=12)
    going = Run(pair, settings, PROMPTS)
    records = going.remaining()
    for _ in range(4):
        next(records)
    going.restart(settings)
    *_, summary = going.remaining()
    assert isinstance(summary, Summary)
    assert [row.output_ids for row in summary.rows] == through.outputs


@pytest.mark.parametrize("name", VARIANTS)
def test_every_architecture_replayed_writes_what_it_writes_alone(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """No forward asks the device for a value, or has to decide anything anew."""
    monkeypatch.setattr(graphs, "STEP", STEP)
    monkeypatch.setattr("engine.runs.run.require_graphs", lambda models: None)
    recording(monkeypatch)
    prompts = prompts_of([[5, 6, 7, 8, 9, 3], [4, 7], [11, 5, 4]])
    settings = {"batch_size": 2, "draft_tokens": 2, "max_new_tokens": 6, "cuda_graphs": True}
    done = finished(pair_of(name), prompts, method="slotspec", **settings)
    assert done.outputs == [alone(name, prompt.ids, 6) for prompt in prompts]
    assert not done.violations
    assert Tape.replayed


def test_a_eagle_draft_reads_a_recorded_target(way: str) -> None:
    pair = eagle_pair()
    prompts = prompts_of([[3, 4, 5, 3, 5, 4, 3], [5], [4, 4, 3, 5]])
    settings = {"method": "slotspec", "batch_size": 2, "max_new_tokens": 12}
    plain = finished(pair, prompts, **settings)
    fixed = finished(pair, prompts, cuda_graphs=True, **settings)
    assert fixed.outputs == plain.outputs
    accepted = [row.accepted for row in fixed.summary.rows]
    assert accepted == [row.accepted for row in plain.summary.rows]
    assert sum(accepted)


# ---- shapes ------------------------------------------------------------------------------


def shapes_of(columns: int, *, whole: bool = False, step: int = STEP) -> FixedShapes:
    store = KVStore()
    store.clear(2, columns)
    return FixedShapes(tiny_pair().target, store, [(1, 0)], whole=whole, step=step)


def test_widths_are_few_and_wide_enough() -> None:
    for columns in (1, 7, 8, 9, 63, 64, 65, 500, 1000):
        shapes = shapes_of(columns)
        widths = [shapes.read(needed) for needed in range(1, columns + 1)]
        assert all(needed <= width <= columns for needed, width in enumerate(widths, 1))
        assert len(set(widths)) <= graphs.WIDTHS
        assert widths == sorted(widths)
    assert shapes_of(100, whole=True).read(1) == 100


def test_each_width_is_recorded_before_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "STEP", STEP)
    monkeypatch.setattr("engine.runs.run.require_graphs", lambda models: None)
    recording(monkeypatch)
    settings = Settings(
        method="slotspec", batch_size=2, max_new_tokens=20, cuda_graphs=True, draft_tokens=3
    )
    run = Run(tiny_pair(), settings, prompts_of([[5] * 10, [6, 7]]))
    made = Tape.made
    columns = 10 + 20 + 3 + 2
    assert made == 3 * -(-columns // STEP)  # a verification, a catch-up, a step
    rounds = [record for record in run.records() if isinstance(record, RoundRecord)]
    assert Tape.made == made
    assert rounds[0].seconds.draft < 5.0


def test_a_cache_that_moved_is_recorded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    recording(monkeypatch)
    shapes = shapes_of(16)
    forward = shapes._forward(Shape(1, 8, 0))
    with torch.inference_mode():
        first = forward.record()
        assert forward.record() is first
        store = shapes.store
        store.buffers[0] = store.buffers[0].clone()
        assert forward.record() is not first


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_a_forward_is_the_same_operations_whatever_is_fed(kind: str, tokens: int) -> None:
    """It asks the device for no value, and no shape depends on one."""
    store = KVStore()
    store.clear(3, 16)
    shapes = FixedShapes(tiny_pair(kind).target, store, [])
    forward = shapes._forward(Shape(tokens, 8, 0))
    seen = []
    with torch.inference_mode():
        forward.compute()
        for start in (0, 2):
            columns = start + torch.arange(tokens).expand(3, -1)
            forward._ids.fill_(5 + start)
            forward._positions.copy_(columns)
            forward._cells.copy_((torch.arange(3)[:, None] * 16 + columns).reshape(-1))
            forward._mask.copy_((torch.arange(8) <= columns[:, :, None])[:, None])
            with Recorder() as recorder:
                forward.compute()
            seen.append(recorder.shapes)
    assert seen[0] == seen[1]
    assert len(seen[0]) > 20


@pytest.mark.parametrize("name", VARIANTS)
def test_a_forward_touches_nothing_on_the_host(name: str) -> None:
    """A copy from the host cannot be recorded, and one to it stops the program. `meta` has no
    values, but is as far from the host as a GPU."""
    model = LanguageModel(deepcopy(architecture(name)).to("meta"), name=name)
    store = KVStore()
    store.clear(2, 32)
    forward = FixedShapes(model, store, [])._forward(Shape(3, 16, 0))
    with torch.inference_mode():
        forward.compute()
        with HostWatch() as watch:
            logits = forward.compute()
    assert logits.device.type == "meta"
    assert watch.touched == []


# ---- refusals ------------------------------------------------------------------------------


def test_other_devices_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"--cuda-graphs needs a CUDA device, not --device cpu"):
        Settings(cuda_graphs=True, device="cpu").check()
    pair = tiny_pair()
    settings = Settings(method="slotspec", cuda_graphs=True)
    with pytest.raises(UserError, match=r"--cuda-graphs needs a CUDA device.* is on cpu: leave"):
        Run(pair, settings, PROMPTS)


class Spread:
    """A model of which only the devices are told."""

    name = "big"

    def __init__(self, *devices: str) -> None:
        class Weight:
            def __init__(self, device: str) -> None:
                self.device = torch.device(device)

        weights = [Weight(device) for device in devices]
        self.hf = type("Model", (), {"parameters": lambda _: iter(weights)})()


def test_a_model_on_several_devices_is_refused() -> None:
    require_graphs([Spread("cuda:0", "cuda:0"), Spread("cuda:1")])  # type: ignore[list-item]
    with pytest.raises(UserError, match=r"each model on one device, and big is on cuda:0, cuda:1"):
        require_graphs([Spread("cuda:1", "cuda:0")])  # type: ignore[list-item]


def test_a_model_that_cannot_be_recorded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    recording(monkeypatch)
    monkeypatch.setattr("engine.runs.run.require_graphs", lambda models: None)
    pair = tiny_pair()
    forward = pair.target.forward

    def asking(feed: Any, store: Any, *, keep: int = 0) -> Tensor:
        logits = forward(feed, store, keep=keep)
        return logits if bool(logits.isfinite().all()) else logits.zero_()

    monkeypatch.setattr(pair.target, "forward", asking)
    with pytest.raises(UserError, match=r"tiny target cannot be recorded .*leave the option out"):
        Run(pair, Settings(method="slotspec", cuda_graphs=True), PROMPTS)
