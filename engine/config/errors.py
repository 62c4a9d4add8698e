"""The errors that are meant for users: one clear line that says what, and the way out."""

from __future__ import annotations

from collections.abc import Mapping


class BatchspecError(Exception):
    """Base class. `str(error)` is the one line that a user reads."""

    exit_code = 1


class UserError(BatchspecError):
    """Something the user typed or supplied cannot be used. Exit status 2."""

    exit_code = 2


class RunError(BatchspecError):
    """The run, or some of its rows, ended with an error. Exit status 1."""


class OutOfMemory(RunError):
    """The device has no memory for the next round. The rows stand as they stood before it.

    Attributes:
        round: rounds that were done by then.
        lengths: by request index: rows that got further in the round that failed, and how
            many committed tokens they had before it.
        lower: settings that could be lowered, and their present values.
    """

    def __init__(self, round: int, lengths: Mapping[int, int], lower: Mapping[str, int]) -> None:
        self.round, self.lengths, self.lower = round, lengths, lower
        options = [f"--{name.replace('_', '-')} ({value})" for name, value in lower.items()]
        way_out = f"lower {' or '.join(options)}" if options else "take a smaller model or dtype"
        super().__init__(f"out of memory in round {round + 1}: {way_out}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, whoever says so and however (torch has no one error for it)."""
    said = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and any(words in said for words in _NO_MEMORY))
    )


OUT_OF_MEMORY = "out of memory: lower --batch-size or --max-new-tokens"
"""What is said where nothing more is known."""

_NO_MEMORY = (
    "can't allocate memory",  # the CPU's allocator
    "not enough memory",
    "out of memory",  # MPS, and CUDA's libraries
    "CUBLAS_STATUS_ALLOC_FAILED",
)


class NonFiniteLogits(RunError):
    """A model returned NaN or infinite logits.

    Attributes:
        rows: request indices whose logits were not finite.
        round: the round in which it happened.
    """

    def __init__(self, rows: list[int], round: int, who: str) -> None:
        self.rows = rows
        self.round = round
        named = ", ".join(str(row) for row in rows)
        super().__init__(
            f"non-finite logits from the {who} in round {round}, row {named}; "
            "try --dtype float32, or check the model's weights"
        )
