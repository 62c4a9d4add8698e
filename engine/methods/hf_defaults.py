"""What transformers does when it is given neither positions nor a mask.

The baselines leave these to the library. We compute them ourselves, so that the records
show exactly what was fed, and no default of a release can change it.
"""

from __future__ import annotations

import numpy as np

from engine.models.causal_lm import LanguageModel
from engine.models.kv_cache import LedgerArray
from engine.rounds.side import MaskArray


def default_positions(
    model: LanguageModel, start: int, tokens: int, mask: MaskArray
) -> LedgerArray:
    """Position IDs of a block when none are given: slot numbers, the same for every row.

    OPT alone counts them from the 2-D mask.

    Args:
        start: columns in the cache before the block.
        mask: the 2-D mask, [rows, start + tokens].
    """
    if model.family == "opt":
        return counted_positions(mask)[:, start:]
    return np.tile(np.arange(start, start + tokens), (len(mask), 1))


def counted_positions(mask: MaskArray) -> LedgerArray:
    """Positions that number the attended cells of a 2-D mask; masked cells get 1.

    That 1 is seen: a row may end in the pad id as a token of its own, and is then asked
    for its next token from a masked cell.
    """
    return np.where(mask, mask.cumsum(axis=1) - 1, 1)


def inferred_mask(ids: LedgerArray, pad_id: int, eos_ids: tuple[int, ...]) -> MaskArray:
    """The 2-D mask that `generate` infers from ids alone: all but the pad id, inside the
    content too; everything where the pad id is an eos id as well."""
    if pad_id in eos_ids:
        return np.ones(ids.shape, bool)
    mask: MaskArray = ids != pad_id
    return mask


def causal(mask: MaskArray, start: int) -> MaskArray:
    """The 4-D mask that the library makes of a 2-D one, [rows, tokens, columns].

    A query that may attend to nothing sees itself: the library keeps such rows finite as
    well, and nothing ever attends to them.

    Args:
        mask: [rows, columns].
        start: column of the block's first token; the block ends with the last column.
    """
    columns = np.arange(mask.shape[1])
    queries = columns[start:, None]
    allowed = (columns <= queries) & mask[:, None]
    lost = ~allowed.any(axis=-1, keepdims=True)
    result: MaskArray = allowed | (lost & (columns == queries))
    return result
