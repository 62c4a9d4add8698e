"""What each moment of the tour claims, said of its records once more and independently."""

from __future__ import annotations

from collections.abc import Callable

from engine.records.schema import RoundRecord
from tui.tour.scene import Scene
from tui.view.state.cursor import LAST, Phase


def gains(record: RoundRecord) -> list[int]:
    return [len(row.committed) for row in record.rows]


def one_token_a_row(scene: Scene) -> None:
    assert len(scene.record.rows) == 4
    assert gains(scene.record) == [1, 1, 1, 1]
    assert not any(row.draft_token_ids for row in scene.record.rows)


def draft_tokens_wait(scene: Scene) -> None:
    assert scene.spot.cursor.phase is Phase.DRAFT
    assert len(scene.row.draft_token_ids) > 1


def some_are_accepted(scene: Scene) -> None:
    assert scene.spot.cursor.phase is Phase.VERIFY
    assert 0 < scene.row.accepted < len(scene.row.draft_token_ids)


def the_bonus_lands(scene: Scene) -> None:
    row = scene.row
    assert scene.spot.cursor.phase is Phase.ACCEPT
    assert row.committed == (*row.draft_token_ids[: row.accepted], row.bonus)
    assert row.bonus != row.draft_token_ids[row.accepted]


def rows_gain_unequally(scene: Scene) -> None:
    assert scene.spot.cursor.phase is Phase.ACCEPT
    assert max(gains(scene.record)) > min(gains(scene.record))


def a_hole_in_the_middle(scene: Scene) -> None:
    kinds = [span.kind for span in scene.row.kept]
    first = kinds.index("content")
    last = len(kinds) - 1 - kinds[::-1].index("content")
    assert "stale" in kinds[first:last]


def positions_are_broken(scene: Scene) -> None:
    broken = {(entry.invariant, entry.row) for entry in scene.record.violations}
    assert ("I2", scene.spot.row) in broken


def the_text_is_wrong(scene: Scene) -> None:
    track = scene.timeline.tracks[scene.spot.row]
    said = track.tokens[track.prompt_length : track.length_at(scene.number)]
    right = scene.answers[scene.spot.row][: len(said)]
    assert said[: len(right)] != list(right)
    breaks = [at for at, entry in scene.timeline.breaks if entry.invariant in ("I2", "I3")]
    assert min(breaks) <= scene.number


def padding_piles_up(scene: Scene) -> None:
    assert min(row.padding for row in scene.record.rows) > 0
    assert "I1" in {entry.invariant for entry in scene.record.violations}


def a_wrong_bonus(scene: Scene) -> None:
    row = scene.row
    assert row.bonus == row.draft_token_ids[row.accepted]
    assert ("I5", row.row) in {(entry.invariant, entry.row) for entry in scene.record.violations}


def rows_move_by_delta(scene: Scene) -> None:
    record = scene.record
    assert scene.spot.cursor.phase is LAST
    assert scene.row.delta != 0
    for row in record.rows:
        assert row.delta == record.length - record.length_before - len(row.committed)
        assert row.padding + row.content == record.length
    assert not record.violations


def moving_costs(scene: Scene) -> None:
    rounds = scene.timeline.rounds[: scene.number]
    assert sum(record.realign_bytes for record in rounds) > 0
    assert sum(record.seconds.realign for record in rounds) > 0


def a_group_of_one_length(scene: Scene) -> None:
    assert scene.record.kind == "grouped"
    assert len({row.before for row in scene.record.rows}) == 1
    assert scene.record.realign_bytes == 0


def a_fallback(scene: Scene) -> None:
    assert scene.record.kind == "fallback"
    assert len({row.before for row in scene.record.rows}) > 1


def nothing_moves(scene: Scene) -> None:
    rounds = scene.timeline.rounds[: scene.number]
    assert not any(row.delta for record in rounds for row in record.rows)
    assert not any(record.realign_bytes for record in rounds)
    assert "stale" in {span.kind for span in scene.row.kept}


def a_row_joins(scene: Scene) -> None:
    assert scene.number > 1
    assert scene.spot.row in scene.record.admitted


CLAIMS: dict[tuple[str, int], Callable[[Scene], None]] = {
    ("plain", 0): one_token_a_row,
    ("speculation", 0): draft_tokens_wait,
    ("speculation", 1): some_are_accepted,
    ("speculation", 2): the_bonus_lands,
    ("raggedness", 0): rows_gain_unequally,
    ("bsp", 0): a_hole_in_the_middle,
    ("bsp", 1): positions_are_broken,
    ("bsp", 2): the_text_is_wrong,
    ("dsd", 0): padding_piles_up,
    ("dsd", 1): a_wrong_bonus,
    ("dsd", 2): the_text_is_wrong,
    ("eqspec", 0): rows_move_by_delta,
    ("cost", 0): moving_costs,
    ("exspec", 0): a_group_of_one_length,
    ("exspec", 1): a_fallback,
    ("slots", 0): nothing_moves,
    ("slots", 1): a_row_joins,
}
