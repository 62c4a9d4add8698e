"""The records of a run, added up: committed tokens, totals, what broke.

Live records and recorded ones give the same. A run that begins where a fold stands goes on
from the same committed tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.records.row import RowRound
from engine.records.schema import Phases, Prompt, RoundRecord, Totals
from engine.records.violation import Violation


class Tally:
    """Adds up the rounds of one lane as they come, and keeps none of them."""

    def __init__(self) -> None:
        self.rounds = 0
        self._phases = Phases()
        self._committed = self._accepted = self._row_rounds = self._moved = 0
        self._kinds = {"grouped": 0, "fallback": 0}

    def add(self, record: RoundRecord) -> None:
        self.rounds += 1
        self._phases = self._phases + record.seconds
        self._moved += record.realign_bytes
        self._row_rounds += len(record.rows)
        self._accepted += sum(row.accepted for row in record.rows)
        self._committed += sum(len(row.committed) for row in record.rows)
        if record.kind in self._kinds:
            self._kinds[record.kind] += 1

    def totals(self, *, peak_memory_bytes: int = 0, output_tokens: int | None = None) -> Totals:
        """What they add up to. `output_tokens` defaults to the committed tokens."""
        seconds, phases = self._phases.total, self._phases
        tokens = self._committed if output_tokens is None else output_tokens
        row_rounds = self._row_rounds
        return Totals(
            output_tokens=tokens,
            seconds=seconds,
            tokens_per_second=tokens / seconds if seconds else 0.0,
            rounds=self.rounds,
            row_rounds=row_rounds,
            accepted_per_row_round=self._accepted / row_rounds if row_rounds else 0.0,
            seconds_by_phase=phases,
            realign_share=phases.realign / seconds if seconds else 0.0,
            realign_bytes=self._moved,
            grouped_rounds=self._kinds["grouped"],
            fallback_rounds=self._kinds["fallback"],
            peak_memory_bytes=peak_memory_bytes,
        )


def totals_of(
    rounds: list[RoundRecord], *, peak_memory_bytes: int = 0, output_tokens: int | None = None
) -> Totals:
    """Add up the rounds of one lane. `output_tokens` defaults to the committed tokens."""
    tally = Tally()
    for record in rounds:
        tally.add(record)
    return tally.totals(peak_memory_bytes=peak_memory_bytes, output_tokens=output_tokens)


@dataclass
class RowFold:
    """One row after its latest round.

    Attributes:
        start: committed tokens before its first round: those of its prompt.
        output: its committed tokens after them.
        rounds: for each of `output`, the round that committed it.
        accepted: for each of `output`, whether it was a draft token that the target accepted.
        broken: (round, violation) of the row or of its whole batch, in order.
        finish_reason, error: how it ended; None while it runs.
        last_round: the last round in which it took part.
        round_count, accepted_count, drafted_count: of all its rounds, as a summary counts them.
    """

    start: int = 0
    output: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    accepted: list[bool] = field(default_factory=list)
    broken: list[tuple[int, Violation]] = field(default_factory=list)
    finish_reason: str | None = None
    error: str | None = None
    last_round: int | None = None
    round_count: int = 0
    accepted_count: int = 0
    drafted_count: int = 0

    def go_back(self, length: int) -> bool:
        """Forget the tokens beyond the first `length`, the prompt's among them.

        Returns:
            Whether there were any.
        """
        kept = max(0, length - self.start)
        if kept >= len(self.output):
            return False
        for known in (self.output, self.rounds, self.accepted):
            del known[kept:]
        return True

    def add(self, number: int, row: RowRound) -> None:
        """Add the row's part of round `number`."""
        self.output.extend(row.committed)
        self.rounds.extend([number] * len(row.committed))
        self.accepted.extend(place < row.accepted for place in range(len(row.committed)))
        self.last_round = number
        self.finish_reason, self.error = row.finish_reason, row.error
        self.round_count += 1
        self.accepted_count += row.accepted
        self.drafted_count += len(row.draft_token_ids)


class RunFold:
    """The rows of one run after its latest round.

    Args:
        prompts: those that there are at first; `join` adds others. A row without a prompt
            begins where its first record does.
    """

    def __init__(self, prompts: Iterable[Prompt] = ()) -> None:
        self.prompts: list[Prompt] = []
        self.rows: dict[int, RowFold] = {}
        self.round = 0
        self.elapsed = 0.0
        """Decoding seconds up to here."""
        self.tally = Tally()
        self.join(prompts)

    def join(self, prompts: Iterable[Prompt]) -> None:
        """Add prompts that joined the queue."""
        for prompt in prompts:
            self.prompts.append(prompt)
            self.rows[prompt.index] = RowFold(start=len(prompt.ids))

    def add(self, record: RoundRecord) -> set[int]:
        """Add the next round. A row that went back before it loses its later tokens.

        Returns:
            The rows that went back.
        """
        back = dict(record.back)
        for entry in record.rows:
            if entry.row not in self.rows:
                self.rows[entry.row] = RowFold(start=entry.before)
            if entry.before:  # not every program tells it
                back[entry.row] = entry.before
        known = {row: length for row, length in back.items() if row in self.rows}
        gone = {row for row, length in known.items() if self.rows[row].go_back(length)}
        for entry in record.rows:
            self.rows[entry.row].add(record.round, entry)
        for violation in record.violations:
            rows = [violation.row] if violation.row is not None else [r.row for r in record.rows]
            for index in rows:
                row = self.rows.setdefault(index, RowFold())
                row.broken.append((record.round, violation))
        self.round, self.elapsed = record.round, record.elapsed
        self.tally.add(record)
        return gone


def fold_rows(records: Iterable[RoundRecord]) -> dict[int, RowFold]:
    """The rows after these rounds, by request index."""
    fold = RunFold()
    for record in records:
        fold.add(record)
    return fold.rows
