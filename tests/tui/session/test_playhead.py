"""The playhead: following, parking, stepping and playing."""

from __future__ import annotations

from tui.session.playhead import SPEEDS, Playhead
from tui.view.state.cursor import LAST, Cursor, Phase


def test_follows_at_full_speed_without_phases() -> None:
    head = Playhead()
    assert head.tick(0.0, 5, True)
    assert head.cursor == Cursor(5)
    assert not head.tick(0.1, 5, True)


def test_shows_the_phases_of_a_slow_round() -> None:
    head = Playhead(speed=1.0)
    seen = []
    now = 0.0
    for _ in range(40):
        head.tick(now, 1, True)
        seen.append((head.cursor.phase, round(head.slide, 2)))
        now += 0.05
    phases = [phase for phase, _ in seen]
    assert sorted(set(phases)) == list(Phase)
    assert phases == sorted(phases)
    slides = [slide for phase, slide in seen if phase is LAST]
    assert slides[0] < 1.0
    assert slides[-1] == 1.0
    assert not head.animating


def test_a_parked_cursor_stays() -> None:
    head = Playhead()
    head.tick(0.0, 9, True)
    head.previous_round(9)
    assert head.cursor == Cursor(8)
    assert not head.following
    assert not head.tick(1.0, 20, True)
    assert head.cursor == Cursor(8)
    head.follow(20)
    assert head.cursor == Cursor(20)
    assert head.following


def test_next_goes_through_the_past_and_then_asks_for_more() -> None:
    head = Playhead(animate=False)
    head.tick(0.0, 9, False)
    head.previous_round(9, 4)
    assert head.next_round(0.0, 9, 3) == 0
    assert head.cursor == Cursor(8)
    assert head.next_round(0.0, 9, 3) == 2
    assert head.cursor == Cursor(9)
    assert head.following


def test_next_by_phases() -> None:
    head = Playhead(animate=False)
    head.tick(0.0, 1, False)
    assert head.next_phase(1)
    head.tick(0.1, 2, False)
    assert head.cursor == Cursor(2, Phase.DRAFT)
    assert not head.next_phase(2)
    assert head.cursor == Cursor(2, Phase.VERIFY)
    head.next_phase(2)
    head.next_phase(2)
    assert head.cursor == Cursor(2, LAST)
    assert head.following
    head.previous_phase(2)
    assert head.cursor == Cursor(2, Phase.ACCEPT)
    head.previous_round(2)
    assert head.cursor == Cursor(1)


def test_plays_from_the_past_to_the_live_end() -> None:
    head = Playhead(speed=5.0)
    head.tick(0.0, 6, False)
    head.jump(2, 6)
    head.play(6)
    now = 0.0
    for _ in range(60):
        now += 0.1
        head.tick(now, 6, False)
    assert head.cursor == Cursor(6)
    assert head.following
    assert not head.playing


def test_jumps_stay_inside() -> None:
    head = Playhead()
    head.tick(0.0, 4, False)
    head.jump(99, 4)
    assert head.cursor == Cursor(4)
    head.jump(-3, 4)
    assert head.cursor == Cursor(0)
    head.previous_round(4)
    assert head.cursor == Cursor(0)


def test_a_key_ends_an_animation_at_once() -> None:
    head = Playhead()
    head.tick(0.0, 1, False)
    assert head.animating
    head.next_round(0.1, 3)
    assert head.cursor == Cursor(2, Phase.DRAFT)
    head.previous_round(3)
    assert head.cursor == Cursor(1)
    assert not head.animating


def test_speeds() -> None:
    head = Playhead()
    for _ in SPEEDS:
        head.slower()
    assert head.speed == SPEEDS[0]
    for _ in SPEEDS:
        head.faster()
    assert head.speed is None
