"""The errors that are meant for users: one clear line that says what, and the way out."""

from __future__ import annotations


class BatchspecError(Exception):
    """Base class. `str(error)` is the one line that a user reads."""

    exit_code = 1


class UserError(BatchspecError):
    """Something the user typed or supplied cannot be used. Exit status 2."""

    exit_code = 2


class RunError(BatchspecError):
    """The run, or some of its rows, ended with an error. Exit status 1."""


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
