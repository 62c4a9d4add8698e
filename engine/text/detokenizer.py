"""What only the tokenizer knows: the text of rows, and of each token that a record names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq

import msgspec

from engine.records.row import RowRound
from engine.records.schema import Prompt, RoundRecord
from engine.text.tokenizer import TextStream, Tokenizer


class Texts:
    """Fills in what only the tokenizer knows: text of rows, and of each new token id."""

    def __init__(self, tokenizer: Tokenizer, prompts: Seq[Prompt]) -> None:
        self._tokenizer = tokenizer
        self._streams: dict[int, TextStream] = {p.index: tokenizer.stream() for p in prompts}
        self._known: set[int] = set()

    def join(self, prompt: Prompt) -> None:
        self._streams[prompt.index] = self._tokenizer.stream()

    def new_pieces(self, ids: Iterable[int]) -> dict[int, str]:
        new = {i for i in ids if i not in self._known}
        self._known |= new
        return {i: self._tokenizer.piece(i) for i in sorted(new)}

    def pieces(self, ids: Iterable[int]) -> dict[int, str]:
        """Text of all these tokens, whether or not a record has named them."""
        every = set(ids)
        self._known |= every
        return {i: self._tokenizer.piece(i) for i in sorted(every)}

    def complete(self, record: RoundRecord) -> RoundRecord:
        rows = tuple(self._with_text(row) for row in record.rows)
        named = (i for row in record.rows for i in _named(row))
        return msgspec.structs.replace(record, rows=rows, pieces=self.new_pieces(named))

    def rewind(self, index: int, output: list[int]) -> None:
        """Forget a row's text beyond these tokens."""
        self._streams[index] = self._tokenizer.stream()
        self._streams[index].feed(output)

    def _with_text(self, row: RowRound) -> RowRound:
        stream = self._streams[row.row]
        text = stream.feed(row.committed)
        if row.finish_reason is not None:
            text += stream.flush()
        return msgspec.structs.replace(row, text=text)


def _named(row: RowRound) -> Iterator[int]:
    """The token ids that a row's record names."""
    yield from row.draft_token_ids
    yield from row.committed
    for test in (*row.tests, row.choice):
        if test is not None:
            yield from (token for token, _ in test.top)
