"""Distillation of an EAGLE-style draft: trained as it will run, packed, and used by the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config.errors import UserError
from engine.config.settings import Settings
from engine.distill.fit_fusion import fit_fusion
from engine.distill.labels import Labels
from engine.distill.run import Stage, distill_model
from engine.distill.tokens import TokenData, load_tokens, save_tokens
from engine.distill.unroll import unroll
from engine.models.eagle_format import (
    EagleDraft,
    build_eagle_draft,
    is_eagle_draft,
    load_eagle_draft,
    save_eagle_draft,
)
from engine.pairs.load import load_pair
from engine.pairs.registry import PairRequest
from engine.pairs.toy import toy_models
from engine.records.schema import Summary
from engine.runs.run import Run
from tests.distill.test_distill import VOCAB, settings, tiny_data, tiny_target
from tests.tiny import prompts_of

DRAFT_MODEL, READS = [4, 5], [1, 3]


@pytest.fixture(scope="module")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "tokens.safetensors"
    save_tokens(tiny_data(tiny_target(), 400), path)
    return path


def labelled(target: Any, data: TokenData, place: Path) -> Labels:
    labels = Labels(place, data, 32, 384, READS)
    labels.fill(target)
    return labels


def student_of(target: Any) -> EagleDraft:
    torch.manual_seed(3)
    return build_eagle_draft(target, DRAFT_MODEL, READS, torch.arange(VOCAB))


@torch.no_grad()
def test_an_unrolled_step_is_what_the_draft_does_when_it_runs_ahead() -> None:
    """Of token t the draft in step j was given tokens up to t − j, and goes on by itself."""
    target = tiny_target().double()
    student = student_of(target)
    ids = torch.tensor([[5, 9, 3, 22, 40, 7, 7, 13]])
    read = target.model(ids, use_cache=False, output_hidden_states=True)
    layers = [read.hidden_states[layer + 1] for layer in READS]
    states = torch.cat([read.last_hidden_state, *layers], dim=-1)
    steps = list(unroll(student, ids, states, 4))
    vectors = student.features([read.last_hidden_state, *layers])[0]
    student.draft.set_attn_implementation("eager")
    for step in range(1, 5):
        for at in range(step, ids.shape[1]):
            known = at - step + 1  # tokens before which the target's vector is known
            before = [torch.zeros(32).double(), *vectors[:known]]
            for _ in range(step):
                fed = ids[:, : len(before)]
                inputs = student.fusion(student.model.embed_tokens(fed), torch.stack(before)[None])
                own = student.model(inputs_embeds=inputs, use_cache=False).last_hidden_state[0, -1]
                before.append(student.fusion.carry(own))
            torch.testing.assert_close(steps[step - 1][0, at], own, rtol=1e-5, atol=1e-5)


def test_the_fitted_wire_brings_the_draft_closer(data_file: Path, tmp_path: Path) -> None:
    target = tiny_target()
    labels = labelled(target, load_tokens(data_file, VOCAB), tmp_path)
    fitted, unfitted = student_of(target), student_of(target)
    assert fit_fusion(fitted, labels, DRAFT_MODEL[0]) < 0.9

    def distance(student: EagleDraft) -> float:
        total = 0.0
        for index in range(20):
            ids = labels.data.sequence(index)[None]
            states = labels.rows([index], ids.shape[1]).float()
            own = next(unroll(student, ids, states, 1))[0, 1:]
            total += float((own - states[0, 1:, :32]).square().mean().detach())
        return total

    assert distance(fitted) < 0.8 * distance(unfitted)
    with pytest.raises(UserError, match="must read layer 4"):
        fit_fusion(fitted, labels, 5)


def test_a_run_learns_and_packs_what_it_learned(data_file: Path, tmp_path: Path) -> None:
    target = tiny_target()
    losses: list[float] = []

    def tell(stage: Stage) -> None:
        if stage.training is not None:
            losses.append(stage.training.loss)

    def run(**changes: object) -> None:
        distill_model(
            target,
            None,
            settings(
                tmp_path, data_file, **{"layers": "5-5", "reads": "1,4", "int8": False, **changes}
            ),
            tell,
        )

    run(max_steps=150)
    assert losses[-1] < 0.75 * losses[0]
    assert is_eagle_draft(tmp_path)
    student, hot = load_eagle_draft(tmp_path, target)
    assert (len(hot), student.features.layers) == (40, (1, 4))
    run(resume=True, max_steps=151)
    assert len(losses) == 151
    with pytest.raises(UserError, match="other reads"):
        run(resume=True, reads="0,4")


@pytest.mark.parametrize("layers", ["4-5", "0-1"])
def test_what_cannot_be_wired_is_refused(layers: str, data_file: Path, tmp_path: Path) -> None:
    chosen = settings(tmp_path, data_file, layers=layers, reads="1,2")
    with pytest.raises(UserError, match="--eagle-layers"):
        distill_model(tiny_target(), None, chosen)


@pytest.mark.parametrize("int8", [False, True])
def test_a_packed_draft_drafts_in_the_engine(int8: bool, tmp_path: Path) -> None:
    target, _ = toy_models(dtype=torch.float32)
    last = target.config.num_hidden_layers - 1
    torch.manual_seed(0)
    hot = torch.arange(target.config.vocab_size)
    student = build_eagle_draft(target, [last], [last - 1], hot)
    save_eagle_draft(tmp_path, student, [last], hot, int8=int8)
    pair = load_pair(PairRequest(name="toy", draft=str(tmp_path)))
    prompts = prompts_of([[5, 6, 7, 8], [9, 10]])
    for method in ("eqspec", "slotspec"):
        *_, summary = Run(
            pair, Settings(method=method, max_new_tokens=12, batch_size=2), prompts
        ).records()
        plain = Settings(method="autoregressive", max_new_tokens=12, batch_size=2)
        *_, expected = Run(pair, plain, prompts).records()
        assert isinstance(summary, Summary)
        assert isinstance(expected, Summary)
        assert [row.output_ids for row in summary.rows] == [row.output_ids for row in expected.rows]
        assert all(row.drafted for row in summary.rows)


def test_the_built_in_drafts_are_of_the_built_in_target_only() -> None:
    with pytest.raises(UserError, match="there is none of toy target"):
        load_pair(PairRequest(name="toy", draft="features"))
