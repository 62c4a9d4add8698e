"""The views: plain functions of (records, cursor)."""

from __future__ import annotations

import time

import pytest
from rich.cells import cell_len

from tests.synthetic import PROMPTS, records
from tui.view.batch.cells import Kind, Segment, overview, window
from tui.view.batch.paint_tensor import geometry, paint_row, paint_ruler, row_height
from tui.view.batch.tensor import tensor_view
from tui.view.lines import crop, plain, spread, width_of, wrap
from tui.view.panes.cost import cost_lines
from tui.view.panes.invariants import invariants_lines
from tui.view.panes.method import method_lines
from tui.view.panes.status import status_lines
from tui.view.panes.texts import texts_lines
from tui.view.showable import fit, fit_left, showable
from tui.view.state.cursor import LAST, Cursor, Phase
from tui.view.state.frame import CellMode, Frame
from tui.view.state.timeline import Timeline

METHODS = ("eqspec", "exspec", "slotspec", "bsp", "dsd")


def timeline(method: str = "eqspec", **options: object) -> Timeline:
    made = Timeline()
    for record in records(method, **options):  # type: ignore[arg-type]
        made.add(record)
    return made


def painted(frame: Frame, width: int = 100, height: int = 20) -> list[str]:
    view = tensor_view(frame)
    shape = geometry(view, width, 7)
    each = row_height(len(view.rows), height)
    lines = [paint_ruler(view, shape)]
    for row in view.rows:
        lines += paint_row(frame, view, row, shape, each)
    return [plain(line) for line in lines]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("width", [24, 40, 80, 120, 200])
def test_every_line_has_the_width_of_its_pane(method: str, width: int) -> None:
    made = timeline(method, max_new_tokens=30)
    for number in (0, 1, 2, made.last // 2, made.last):
        for phase in Phase:
            for mode in CellMode:
                frame = Frame(made, Cursor(number, phase), mode=mode)
                for line in painted(frame, width):
                    assert cell_len(line) == width
        frame = Frame(made, Cursor(number))
        for lines in (
            cost_lines(frame, width, 9),
            method_lines(frame, width, 9),
            texts_lines(frame, width, 9),
            invariants_lines(frame, width, 5),
        ):
            if width >= 40:
                assert all(width_of(line) <= width for line in lines)


def test_phases_of_a_round() -> None:
    made = timeline()
    record = made.rounds[2]
    row = record.rows[0]
    kinds = {
        phase: [
            segment.kind for segment in tensor_view(Frame(made, Cursor(3, phase))).rows[0].segments
        ]
        for phase in Phase
    }
    assert kinds[Phase.DRAFT][-1] is Kind.PROPOSED
    assert Kind.ACCEPTED not in kinds[Phase.DRAFT]
    assert row.accepted == 3
    assert kinds[Phase.VERIFY][-2:] == [Kind.ACCEPTED, Kind.REJECTED]
    assert kinds[Phase.ACCEPT][-3:] == [Kind.ACCEPTED, Kind.BONUS, Kind.REJECTED]
    assert kinds[Phase.REALIGN][-2:] == [Kind.ACCEPTED, Kind.BONUS]


def test_rows_slide_by_delta() -> None:
    made = timeline()
    number, place = next(
        (record.round, place)
        for record in made.rounds
        for place, row in enumerate(record.rows)
        if row.delta >= 2 and row.padding > row.delta
    )
    delta = made.rounds[number - 1].rows[place].delta

    def first_content(slide: float) -> int:
        frame = Frame(made, Cursor(number), slide=slide)
        segments = tensor_view(frame).rows[place].segments
        return next(segment.start for segment in segments if segment.kind is not Kind.PAD)

    assert first_content(1.0) - first_content(0.0) == delta
    assert first_content(0.0) < first_content(0.5) <= first_content(1.0)


def test_a_rectangle_ends_at_its_edge_and_slots_keep_their_tails() -> None:
    made = timeline("eqspec")
    for number in range(1, made.last + 1):
        view = tensor_view(Frame(made, Cursor(number)))
        assert {row.segments[-1].end for row in view.rows} == {view.edge}
    made = timeline("slotspec")
    view = tensor_view(Frame(made, Cursor(5)))
    assert any(row.segments[-1].kind is Kind.STALE for row in view.rows)
    assert all(row.segments[0].start == 0 for row in view.rows)


def test_bsp_leaves_holes_and_dsd_piles_up_padding() -> None:
    made = timeline("bsp")
    view = tensor_view(Frame(made, Cursor(6)))
    kinds = [segment.kind for segment in view.rows[1].segments]
    assert Kind.STALE in kinds[:-1]
    made = timeline("dsd")
    early = min(row.padding for row in made.rounds[0].rows)
    late = min(row.padding for row in made.rounds[20].rows)
    assert late > early


def test_window_and_overview() -> None:
    segments = [
        Segment(0, 2, Kind.PAD),
        Segment(2, 6, Kind.PROMPT, 0),
        Segment(8, 2, Kind.STALE, -1, (7, 9), 8),
    ]
    cells = window(segments, 1, 10)
    assert [cell.kind for cell in cells[:2]] == [Kind.PAD, Kind.PROMPT]
    assert cells[1].place == 0
    assert (cells[-1].token, cells[-1].position) == (9, 9)
    kinds = overview(segments, 0, 10, 5)
    assert kinds == [Kind.PAD, Kind.PROMPT, Kind.PROMPT, Kind.PROMPT, Kind.STALE]
    assert overview(segments, 0, 10, 0) == []


def test_the_state_of_a_row_at_any_round() -> None:
    made = timeline()
    track = made.tracks[0]
    for number in range(made.last + 1):
        old, new = track.text_at(number)
        length = track.length_at(number)
        known = [row for record in made.rounds[:number] for row in record.rows if row.row == 0]
        assert old + new == "".join(row.text for row in known)
        assert length == (known[-1].content if known else track.prompt_length)
    generated = sum(len(t.tokens) - t.prompt_length for t in made.tracks.values())
    assert made.tokens_at(made.last) == generated


def test_sums_at_a_cursor() -> None:
    made = timeline()
    number = made.last // 2
    seconds = sum(record.seconds.total for record in made.rounds[:number])
    realign = sum(record.seconds.realign for record in made.rounds[:number])
    assert made.seconds_at(number) == pytest.approx(seconds)
    assert made.realign_share_at(number) == pytest.approx(realign / seconds)
    assert sum(made.histogram_at(number)) == sum(len(r.rows) for r in made.rounds[:number])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[2J", "␛[2J"),
        ("a\nb\tc", "a␊b␉c"),
        ("\x7f\x9b1m", "␡⟨U+009B⟩1m"),
        ("\u202eabc", "⟨U+202E⟩abc"),
        ("a\u200bb\u2066", "a⟨U+200B⟩b⟨U+2066⟩"),
        ("[/INST] [bold]", "[/INST] [bold]"),
        ("日本 😀", "日本 😀"),
        ("\u2028", "⟨U+2028⟩"),
        ("a\u00a0b", "a b"),
        ("\ud83d", "⟨U+D83D⟩"),
    ],
)
def test_showable(text: str, shown: str) -> None:
    assert showable(text) == shown


def test_showable_keeps_line_feeds_where_they_are_wrapped() -> None:
    assert showable("a\nb\r", newlines=True) == "a\nb␍"


@pytest.mark.parametrize("text", ["", "abc", "abcdefgh", "日本語日本語", "a日b本c語", "😀😀😀"])
def test_fit_is_exact(text: str) -> None:
    for width in range(1, 9):
        assert cell_len(fit(text, width)) == width
        assert cell_len(fit_left(text, width)) == width
        assert width_of(crop([(text, "x"), (text, "y")], width)) == width
        assert width_of(spread([(text, "x")], [("!", "y")], width, ("-", "z"))) == width


def test_wrap_breaks_at_spaces() -> None:
    lines = [plain(line) for line in wrap([("the quick brown fox\njumps", "x")], 10)]
    assert lines == ["the quick", "brown fox", "jumps"]
    assert all(width_of(line) <= 4 for line in wrap([("日本語日本語", "x")], 4))


def test_status_shrinks_with_the_screen() -> None:
    frame = Frame(timeline(), Cursor(5))
    for width in (20, 40, 80, 120):
        for height in (1, 2):
            for line in status_lines(frame, "running", None, True, "12", width, height):
                assert width_of(line) == width


def test_painting_is_cheap() -> None:
    made = timeline(batch_size=8, max_new_tokens=200)
    best = 1.0
    for number in range(10, 30):
        frame = Frame(made, Cursor(number))
        begin = time.perf_counter()
        painted(frame, 118, 18)
        texts_lines(frame, 46, 13)
        cost_lines(frame, 36, 13)
        method_lines(frame, 36, 7)
        invariants_lines(frame, 36, 5)
        best = min(best, time.perf_counter() - begin)
    assert best < 0.02


def test_last_is_realign() -> None:
    assert LAST is Phase.REALIGN
    assert Cursor(3, LAST).next_phase() == Cursor(4, Phase.DRAFT)
    assert Cursor(4, Phase.DRAFT).previous_phase() == Cursor(3, LAST)
    assert Cursor().previous_phase() == Cursor()
    assert len(PROMPTS) == 8
