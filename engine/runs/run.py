"""A run: a pair, settings and prompts in; a stream of records out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

import msgspec

from engine.config.settings import Settings
from engine.config.versions import versions
from engine.drafting.build import build_drafting
from engine.methods import method_named
from engine.microscope.inspect import Inspection, NotingSampler
from engine.microscope.kv_audit import Audit
from engine.microscope.observer import Microscope
from engine.models.cuda_graphs import require_graphs
from engine.models.device_memory import peak_memory_bytes, require_memory
from engine.records.fold import RunFold, Tally
from engine.records.schema import Prompt, Record, RowSummary, RunHeader, Summary, Totals
from engine.rounds.acceptance import Acceptance
from engine.rounds.draft_model import Drafter
from engine.rounds.draft_policy import Fixed
from engine.rounds.layout import Plan
from engine.rounds.method import Method
from engine.rounds.round import Loop
from engine.rounds.sampling import Sampler
from engine.rounds.sequence import Sequence
from engine.rounds.synthetic_acceptance import SyntheticAcceptance
from engine.runs.out_of_memory import attempt
from engine.text.detokenizer import Texts

if TYPE_CHECKING:
    from engine.pairs.load import Pair


class Run:
    """One run of one method on one pair.

    Args:
        pair: loaded models and their tokenizer.
        settings: checked settings; `device` and `dtype` are the pair's.
        prompts: in the order in which outputs are wanted.
        lane: number of the run in a comparison.
        start: where the rows begin, if not at the ends of their prompts: the run counts
            its rounds on from there.
    """

    def __init__(
        self,
        pair: Pair,
        settings: Settings,
        prompts: Seq[Prompt],
        lane: int = 0,
        start: RunFold | None = None,
    ) -> None:
        self.pair = pair
        self.settings = settings.check()
        self.prompts = tuple(prompts)
        self.lane = lane
        self.rows = [new_row(pair, self.settings, prompt) for prompt in self.prompts]
        self._tally = Tally() if start is None else start.tally
        self._back: dict[int, int] = {}
        self._texts = Texts(pair.tokenizer, self.prompts)
        if start is not None:
            self._restore(start)
        self.loop = build_loop(pair, self.settings, self.rows, lane)
        """The rounds as they are made now; a restart puts another in its place."""
        if start is not None:
            self.loop.round, self.loop.elapsed = start.round, start.elapsed

    def _restore(self, start: RunFold) -> None:
        for row in self.rows:
            was = start.rows[row.index]
            row.restore(
                was.output,
                rounds=was.round_count,
                accepted=was.accepted_count,
                drafted=was.drafted_count,
            )
            self._texts.rewind(row.index, row.output)

    def header(self) -> RunHeader:
        """The run's first record."""
        settings = msgspec.to_builtins(self.settings)
        settings |= settings.pop("sampling")
        settings["prompt_lookup"] = prompt_lookup(self.pair, self.settings)
        settings["device"] = str(self.pair.target.device)
        settings["dtype"] = str(self.pair.target.dtype).removeprefix("torch.")
        return RunHeader(
            lane=self.lane,
            method=self.settings.method,
            pair=self.pair.info,
            settings=settings,
            prompts=self.prompts,
            pieces=self._texts.pieces(i for prompt in self.prompts for i in prompt.ids),
            versions=versions(),
        )

    def records(self) -> Iterator[Record]:
        """Header, rounds, summary. Closing the iterator stops between two rounds."""
        yield self.header()
        yield from self.remaining()

    def remaining(self) -> Iterator[Record]:
        """The rounds that are left, and the summary."""
        while (record := attempt(self.loop, self.rows, self.settings)) is not None:
            complete = msgspec.structs.replace(
                self._texts.complete(record), fault=self.settings.fault, back=self._back
            )
            self._back = {}
            self._tally.add(complete)
            yield complete
        yield self.summary()

    def new_pieces(self, ids: Iterable[int]) -> dict[int, str]:
        """Text of those tokens that no record has named yet."""
        return self._texts.new_pieces(ids)

    def join(self, prompt: Prompt) -> None:
        """Add a prompt to the end of the queue. Call between two rounds."""
        row = new_row(self.pair, self.settings, prompt)
        fits = row.limit <= max((other.limit for other in self.rows), default=0)
        self.prompts += (prompt,)
        self.rows.append(row)
        self._texts.join(prompt)
        if not row.running:
            return
        if fits and not self.settings.strict:
            self.loop.schedule.queue.append(row)
        else:
            self.restart()

    def lengths(self) -> dict[int, int]:
        """Committed tokens of every row: a moment to which `restart` can go back."""
        return {row.index: row.length for row in self.rows}

    def change_k(self, settings: Settings) -> bool:
        """Go on with another K, as the rows stand. False: the loop has to be made anew.

        Args:
            settings: differ from the run's in `draft_tokens` alone.
        """
        policy, k = self.loop.policy, settings.draft_tokens
        if not isinstance(policy, Fixed) or k == "auto" or k > policy.largest or settings.strict:
            return False
        policy.draft_tokens, self.settings = k, settings
        return True

    def restart(
        self,
        settings: Settings | None = None,
        lengths: Mapping[int, int] | None = None,
        *,
        round: int | None = None,
    ) -> None:
        """Go on under other settings, or from an earlier moment, or both.

        The rows are prefilled again from their committed tokens, so nothing of the state
        that they had survives: neither K/V nor padding. Call between two rounds, in the
        thread that runs them; the next record is the next round of the same stream.

        Args:
            settings: method, fault, K, …; the models stay as they were loaded. None: as
                they are.
            lengths: by request index, how many committed tokens a row goes back to; such
                a row runs on, though it may have ended since. Rows that are not named
                stand where they are.
            round: rounds so far, where they are fewer than the loop counted.
        """
        settings = (self.settings if settings is None else settings).check()
        back = {} if lengths is None else dict(lengths)
        rows = []
        for old in self.rows:
            row = new_row(self.pair, settings, old.prompt)
            row.resume(old, back.get(old.index))
            if row.length < old.length:
                self._texts.rewind(row.index, row.output)
                self._back = self._back | {row.index: row.length}
            rows.append(row)
        loop = build_loop(self.pair, settings, rows, self.lane)
        loop.round = self.loop.round if round is None else round
        loop.elapsed = self.loop.elapsed
        self.settings, self.rows, self.loop = settings, rows, loop

    def summary(self) -> Summary:
        """Outputs and totals so far, rows in the order of the prompts."""
        rows = tuple(self._row_summary(row) for row in self.rows)
        return Summary(
            lane=self.lane,
            rows=rows,
            totals=self.totals(),
            interrupted=any(row.running for row in self.rows),
        )

    def totals(self) -> Totals:
        """Costs and counts so far."""
        return self._tally.totals(
            peak_memory_bytes=peak_memory_bytes(self.pair.target.device),
            output_tokens=sum(row.length - row.prompt_length for row in self.rows),
        )

    def _row_summary(self, row: Sequence) -> RowSummary:
        return RowSummary(
            index=row.index,
            prompt_ids=row.prompt.ids,
            output_ids=tuple(row.output),
            text=self.pair.tokenizer.decode(row.output),
            finish_reason=row.finish_reason or "running",
            error=row.error,
            rounds=row.rounds,
            accepted=row.accepted,
            drafted=row.drafted,
        )


def _method(settings: Settings) -> Method:
    return method_named(settings.method, strict=settings.strict, fault=settings.fault)


def new_row(pair: Pair, settings: Settings, prompt: Prompt) -> Sequence:
    """A row that stands at the end of its prompt."""
    return _method(settings).row(
        prompt,
        budget=settings.max_new_tokens,
        context=pair.target.context,
        eos_ids=frozenset(pair.tokenizer.eos_ids),
        pad_id=pair.tokenizer.pad_id,
    )


def build_loop(
    pair: Pair,
    settings: Settings,
    rows: list[Sequence],
    lane: int = 0,
    *,
    columns: int | None = None,
    accept: Acceptance | None = None,
    drafter: Drafter | None = None,
) -> Loop:
    """Put a method's choices together into a round loop.

    Args:
        columns: the longest that a row may become, where the rows alone do not tell
            (strict mode compares runs of one shape).
        accept, drafter: in place of the method's own.
    """
    method = _method(settings)
    policy, own_drafter = build_drafting(
        method,
        settings,
        pair.draft,
        pair.ngrams,
        prompt_lookup=prompt_lookup(pair, settings),
    )
    draft = pair.draft if policy.largest else None
    plan = Plan(
        batch_size=settings.batch_size,
        window=max(settings.window, settings.batch_size),
        # under strict, plain steps have the shape of the verification they are compared with
        draft_tokens=settings.largest_draft_tokens if settings.strict else policy.largest,
        columns=columns or max((row.limit for row in rows), default=1),
        strict=settings.strict,
        graphs=settings.cuda_graphs,
    )
    make = NotingSampler if settings.inspect else Sampler
    sampler = make(settings.sampling, pair.target.vocabulary, pair.never)
    if settings.cuda_graphs:
        require_graphs([pair.target] if draft is None else [pair.target, draft])
    lengths = [row.prompt_length for row in rows]
    longest = max((row.length for row in rows), default=0)
    with pair.lease:  # a layout of fixed shapes records them: those are forwards
        require_memory(pair.target, draft, [settings], lengths, longest=longest)
        layout = method.layout(pair.target, draft, plan)
    if accept is None:
        synthetic = settings.force_accept is not None
        accept = method.accept(SyntheticAcceptance(settings)) if synthetic else method.accept()
    observer = Microscope(
        layout,
        accept,
        lane=lane,
        inspection=Inspection(sampler) if isinstance(sampler, NotingSampler) else None,
        auditor=Audit(pair.target) if settings.audit else None,
    )
    schedule = method.schedule(rows, layout, batch_size=settings.batch_size, window=settings.window)
    return Loop(
        layout=layout,
        schedule=schedule,
        policy=policy,
        drafter=drafter or own_drafter,
        accept=accept,
        sampler=sampler,
        observer=observer,
        lease=pair.lease,
    )


def prompt_lookup(pair: Pair, settings: Settings) -> bool:
    """Whether text is drafted before the draft model is asked."""
    return pair.prompt_lookup if settings.prompt_lookup is None else settings.prompt_lookup
