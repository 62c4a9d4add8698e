"""Where the rows of a run stand after some round, told by its records alone.

A run that begins there goes on from the same committed tokens, whatever has become of the
first one since. Needs no torch: live records and recorded ones tell the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.records.schema import Prompt, RoundRecord, Tally


@dataclass
class RowStanding:
    """One row.

    Attributes:
        output: its committed tokens after the prompt.
        rounds, accepted, drafted: what a summary counts of it.
    """

    output: list[int] = field(default_factory=list)
    rounds: int = 0
    accepted: int = 0
    drafted: int = 0


class Standing:
    """The rows of one run after its latest round.

    Args:
        prompts: those that there are at first; `join` adds others.
    """

    def __init__(self, prompts: Iterable[Prompt]) -> None:
        self.prompts: list[Prompt] = list(prompts)
        self.rows = {prompt.index: RowStanding() for prompt in self.prompts}
        self.round = 0
        self.elapsed = 0.0
        """Decoding seconds up to here."""
        self.tally = Tally()

    def join(self, prompts: Iterable[Prompt]) -> None:
        """Take in prompts that joined the queue."""
        for prompt in prompts:
            self.prompts.append(prompt)
            self.rows[prompt.index] = RowStanding()

    def add(self, record: RoundRecord) -> None:
        """Take in the next round. A row that went back before it loses its later tokens."""
        starts = {prompt.index: len(prompt.ids) for prompt in self.prompts}
        for index, length in record.back.items():
            del self.rows[index].output[length - starts[index] :]
        for entry in record.rows:
            row = self.rows[entry.row]
            row.output += entry.committed
            row.rounds += 1
            row.accepted += entry.accepted
            row.drafted += len(entry.draft_token_ids)
        self.round, self.elapsed = record.round, record.elapsed
        self.tally.add(record)
