"""A ragged block is cut into rectangles, and attends as if each token were alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.attention import Attending, bands, grouped_attention
from engine.models.forward_input import Feed, Packing
from engine.models.kv_cache import KVStore, Write
from engine.models.windows import Windows
from engine.rounds.packed_logits import Logits

HEADS, KV_HEADS, DIM = 4, 2, 8

Counts = st.lists(st.integers(1, 7), min_size=1, max_size=7)


@given(Counts)
def test_every_token_lies_in_one_rectangle(counts: list[int]) -> None:
    seen = np.zeros((len(counts), max(counts)), int)
    for band in bands(counts):
        seen[band.rows, band.tokens] += 1
    for row, count in enumerate(counts):
        assert (seen[row, :count] == 1).all()
    assert seen.max() == 1


def block(counts: list[int], lengths: list[int]) -> tuple[Feed, KVStore]:
    rows, tokens = len(counts), max(counts)
    columns = np.array(lengths)[:, None] + np.arange(tokens)
    read = int(columns.max()) + 1
    store = KVStore()
    store.clear(rows, read)
    seen = np.arange(read) <= columns[:, :, None]
    cells = np.arange(rows)[:, None] * read + columns
    feed = Feed(
        ids=torch.zeros((rows, tokens), dtype=torch.int64),
        positions=torch.from_numpy(columns),
        mask=torch.from_numpy(seen)[:, None],
        write=Write(rows=rows, read=read, cells=torch.from_numpy(cells.reshape(-1))),
        counts=counts,
    )
    return feed, store


def alone(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """One token over what it may see: [heads, dim], from [heads, dim] and [kv heads, n, dim]."""
    group = HEADS // KV_HEADS
    out = []
    for head in range(HEADS):
        scores = key[head // group] @ query[head] * DIM**-0.5
        out.append(scores.softmax(-1) @ value[head // group])
    return torch.stack(out)


@settings(max_examples=60, deadline=None)
@given(Counts, st.integers(0, 5), st.booleans())
def test_attention_of_a_ragged_block_is_that_of_its_tokens(
    counts: list[int], seed: int, split: bool
) -> None:
    rng = np.random.default_rng(seed)
    lengths = [int(length) for length in rng.integers(0, 12, len(counts))]
    feed, store = block(counts, lengths)
    torch.manual_seed(seed)
    packing = Packing(feed, store, torch.device("cpu")) if feed.ragged else None
    shape = (1, sum(counts)) if packing else feed.ids.shape
    query = torch.randn(shape[0], HEADS, shape[1], DIM, dtype=torch.float64)
    key, value = torch.randn(2, len(counts), KV_HEADS, feed.write.read, DIM, dtype=torch.float64)
    plan = Attending(
        feed, Windows(), HEADS // KV_HEADS, torch.float64, torch.device("cpu"), packing
    )
    out = plan.attend(query, key, value, 0, DIM**-0.5)
    at = 0
    for row, count in enumerate(counts):
        for token in range(count):
            place = (0, at) if packing else (row, token)
            sees = lengths[row] + token + 1
            expected = alone(query[place[0], :, place[1]], key[row, :, :sees], value[row, :, :sees])
            torch.testing.assert_close(out[place], expected)
            at += 1


@given(Counts)
def test_the_best_of_packed_logits_are_those_of_the_block(counts: list[int]) -> None:
    torch.manual_seed(len(counts))
    packed = torch.randn(sum(counts), 11)
    logits = Logits(packed, counts)
    highest, best = logits.best()
    assert best.shape == (len(counts), max(counts))
    at = 0
    for row, count in enumerate(counts):
        assert best[row, :count].tolist() == packed[at : at + count].argmax(-1).tolist()
        torch.testing.assert_close(logits.whole[row, :count], packed[at : at + count])
        at += count
    torch.testing.assert_close(highest, logits.whole.amax(-1))


def test_a_whole_block_is_left_as_it_is() -> None:
    whole = torch.randn(2, 3, 5)
    assert Logits(whole, [3, 3]).whole is whole


def test_a_forward_without_a_plan_is_refused() -> None:
    query = torch.zeros(1, 1, 1, 4)
    with pytest.raises(AssertionError, match="without a plan"):
        grouped_attention(torch.nn.Module(), query, query, query, None)
