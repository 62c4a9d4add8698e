"""One row in one round, in full: how it was verified, how it lay in memory, what moved."""

from __future__ import annotations

from engine.records.row import AcceptTest, BonusChoice, RowRound
from tui.view.lines import Line, crop, width_of, wrap
from tui.view.panes.inspect_memory import memory_lines, moved_lines
from tui.view.showable import fit
from tui.view.state.closeup import CloseUp, prob_words
from tui.view.state.cursor import Phase
from tui.view.state.origin import Origin


def inspect_lines(look: CloseUp, width: int) -> list[Line]:
    """The whole page."""
    parts = (
        token_lines(look, width),
        draft_token_lines(look, width),
        memory_lines(look, width),
        moved_lines(look, width),
    )
    lines: list[Line] = []
    for part in parts:
        if lines and part:
            lines.append([])
        lines += part
    return lines


# ---- one token -----------------------------------------------------------------------


def token_lines(look: CloseUp, width: int) -> list[Line]:
    """The token that is looked at, among its neighbours, and where it came from."""
    origin = look.origin
    if origin is None:
        return []
    timeline = look.frame.timeline
    tokens = timeline.tracks[look.row.row].tokens_at(look.frame.committed_round)
    piece = timeline.piece(origin.token)
    room = max(4, width - 12 - len(piece))
    before, after = "", ""
    for place in range(origin.place - 1, max(-1, origin.place - 40), -1):
        before = timeline.piece(tokens[place]) + before
    length = timeline.tracks[look.row.row].length_at(look.frame.committed_round)
    for place in range(origin.place + 1, min(length, origin.place + 20)):
        after += timeline.piece(tokens[place])
    after = after[: room // 3]
    before = before[-(room - len(after)) :] if before else ""
    head = f"token {origin.place} "
    kind = "prompt" if not origin.number else "accepted" if origin.is_draft_token else "bonus"
    text: Line = [
        (head, "dim"),
        (before, "quiet"),
        (piece, f"cell-{kind}"),
        (after, "quiet"),
    ]
    return [crop(text, width), *wrap(_history(look, origin), width)]


def _history(look: CloseUp, origin: Origin) -> Line:
    """In which round it was made, drafted by whom."""
    number = f"#{origin.token}"
    if origin.row is None:
        return [(f"{number}, of the prompt", "text")]
    row, offset = origin.row, origin.offset
    line: Line = [(f"{number}, committed in round {origin.number}: ", "text")]
    if origin.is_draft_token:
        who = "text:" if row.by_text else "the draft's"
        who = "put into the draft's mouth" if offset < row.forced else who
        line.append(
            (f"{who} draft token {offset + 1} of {len(row.draft_token_ids)}, accepted", "accepted")
        )
        if offset < len(row.tests):
            test = row.tests[offset]
            line.append(
                (f" (q {prob_words(test.draft_prob)}, p {prob_words(test.target_prob)})", "dim")
            )
        return line
    method = look.frame.timeline.method_at(origin.number)
    if method == "dsd" and row.draft_token_ids:
        return [*line, ("the draft's first wrong draft token, taken for the bonus", "broken")]
    rejected = offset < len(row.draft_token_ids)
    if rejected and method != "rollback" and origin.token == row.draft_token_ids[offset]:
        of = len(row.draft_token_ids)
        words = f"draft token {offset + 1} of {of}, rejected, and taken all the same"
        line.append((words, "broken"))
        return [*line, *_choice_words(row)]
    why = (
        f"in place of {_quoted(look, row.draft_token_ids[offset])}"
        if rejected
        else "all were accepted"
    )
    if method == "rollback" and rejected:
        why = (
            "where the batch's shortest row stopped"
            if origin.token == row.draft_token_ids[offset]
            else why
        )
    own = _is_own(row.choice)
    who = "the target's own" if own else "not the target's best"
    line.append((f"{who}, {why}" if row.draft_token_ids else who, "bonus" if own else "broken"))
    return [*line, *_choice_words(row)]


def _is_own(choice: BonusChoice | None) -> bool:
    """Whether a bonus is the target's choice, as far as the record tells."""
    if choice is None or choice.draw is not None or not choice.top:
        return True
    return choice.target_prob >= choice.top[0][1]


def _choice_words(row: RowRound) -> Line:
    return [] if row.choice is None else [(f" (p {prob_words(row.choice.target_prob)})", "dim")]


def _quoted(look: CloseUp, token: int) -> str:
    return f"‹{look.frame.timeline.piece(token).strip(' ')}›"


# ---- the draft tokens -------------------------------------------------------------------


def draft_token_lines(look: CloseUp, width: int) -> list[Line]:
    """A line a draft token, and one for the bonus: q, p, the test, the target's best."""
    row, phase = look.row, look.frame.cursor.phase
    if not row.draft_token_ids and row.choice is None:
        return [[("nothing was drafted for this row", "dim")]]
    lines: list[Line] = [_head(look, width)]
    for at, token in enumerate(row.draft_token_ids):
        test = row.tests[at] if at < len(row.tests) else None
        lines.append(_draft_token(look, at, token, test, width))
    if phase >= Phase.VERIFY and row.bonus is not None:
        lines.append(_bonus(look, width))
    if not row.tests and row.draft_token_ids:
        lines.append([("no probabilities: this run was recorded without them", "dim")])
    return lines


def _head(look: CloseUp, width: int) -> Line:
    line: Line = [(fit(" #  drafted", 18) + "     q      p  ", "dim")]
    line.append((fit("the test", _test_width(width)), "dim"))
    if width >= 80:
        line.append(("the target's best", "dim"))
    return crop(line, width)


def _test_width(width: int) -> int:
    return 32 if width >= 100 else 28 if width >= 80 else max(10, width - 33)


def _draft_token(look: CloseUp, at: int, token: int, test: AcceptTest | None, width: int) -> Line:
    row, phase = look.row, look.frame.cursor.phase
    piece = look.frame.timeline.piece(token).removeprefix(" ")
    verified = phase >= Phase.VERIFY
    sign, style, words = "?", "drafted", "not verified yet"
    if verified and at < row.accepted:
        sign, style, words = "✓", "accepted", "accepted"
    elif verified:
        sign, style = "✗", "rejected"
        words = "rejected" if at == row.accepted else "not reached"
    if verified and test is not None and at <= row.accepted:
        words = _test_words(look, at, test, width)
    q = "" if test is None else prob_words(test.draft_prob)
    p = "" if test is None or not verified else prob_words(test.target_prob)
    forced = "!" if at < row.forced else " "
    line: Line = [
        (f"{at + 1:>2}{forced} ", "dim"),
        (sign, style),
        (fit(piece, 13), style),
        (f"{q:>6} {p:>6}  ", "text"),
        (fit(words, _test_width(width)), style if at <= row.accepted else "dim"),
    ]
    top = test.top if test is not None and verified else ()
    return _with_top(look, line, top, token, width)


def _test_words(look: CloseUp, at: int, test: AcceptTest, width: int) -> str:
    row = look.row
    if test.draw is not None:
        sign = "<" if test.accepted else "≥"
        words = f"u·q = {test.draw * test.draft_prob:.3f} {sign} p: "
        words += "accepted" if test.accepted else "rejected"
    else:
        words = "the target's best: accepted" if test.accepted else "not its best: rejected"
    if test.accepted and at >= row.accepted:
        words = "accepted, cut to shortest row" if width >= 100 else "accepted, then cut"
    return words


def _bonus(look: CloseUp, width: int) -> Line:
    row, choice = look.row, look.row.choice
    assert row.bonus is not None
    piece = look.frame.timeline.piece(row.bonus).removeprefix(" ")
    p, words = "", "the target's own"
    if choice is not None:
        p = prob_words(choice.target_prob)
        if choice.draw is None:
            known = "the target's best" if choice.top else words
            words = known if _is_own(choice) else "not the target's best"
        elif choice.residual_prob is not None:
            words = f"max(p−q,0): {prob_words(choice.residual_prob)}, u {choice.draw:.2f}"
        else:
            words = f"drawn from p, u {choice.draw:.3f}"
    if look.frame.method == "dsd" and row.bonus in row.draft_token_ids:
        words = "the draft's own wrong token"
    line: Line = [
        ("    ", "dim"),
        ("★", "bonus"),
        (fit(piece, 13), "bonus"),
        (f"{'':>6} {p:>6}  ", "text"),
        (fit(words, _test_width(width)), "bonus"),
    ]
    return _with_top(look, line, choice.top if choice is not None else (), row.bonus, width)


def _with_top(
    look: CloseUp, line: Line, top: tuple[tuple[int, float], ...], chosen: int, width: int
) -> Line:
    for token, prob in top if width >= 80 else ():
        piece = look.frame.timeline.piece(token).strip(" ")
        entry: Line = [
            (piece, "strong" if token == chosen else "text"),
            (f" {prob_words(prob)[1:] if prob < 1.0 else '1'}  ", "dim"),
        ]
        if width_of(line) + width_of(entry) > width:
            break
        line = [*line, *entry]
    return crop(line, width)
