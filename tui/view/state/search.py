"""Finding a text, or a token by its id, in everything that the rows have committed."""

from __future__ import annotations

from typing import NamedTuple

from tui.view.state.timeline import BLANK, Timeline
from tui.view.state.track import RowTrack


class Hit(NamedTuple):
    """A place where it stands."""

    number: int
    """The round that committed its last token; for a prompt, the row's first round."""
    row: int
    place: int
    """Index of that token among the row's own."""


def find(timeline: Timeline, query: str) -> list[Hit]:
    """All hits, in the order of the rounds.

    Args:
        query: a text, in any case where it is written small; or token ids, as in "#12 #7".
    """
    words = query.split()
    if words and all(word[0] == "#" and word[1:].isdecimal() for word in words):
        wanted = [int(word[1:]) for word in words]
        found = [(track, _ids(track.tokens, wanted)) for track in timeline.tracks.values()]
    elif query:
        found = [(track, _texts(timeline, track, query)) for track in timeline.tracks.values()]
    else:
        found = []
    hits = []
    for track, places in found:
        if places:
            rounds = _rounds(track)
            hits += [Hit(rounds[place], track.prompt.index, place) for place in places]
    return sorted(hits)


def _ids(tokens: list[int], wanted: list[int]) -> list[int]:
    """Where the ids stand one after the other: the places of the last of them."""
    size = len(wanted)
    return [
        at + size - 1
        for at in range(len(tokens) - size + 1)
        if tokens[at] == wanted[0] and tokens[at : at + size] == wanted
    ]


def _texts(timeline: Timeline, track: RowTrack, query: str) -> list[int]:
    """The tokens in which the text ends, wherever it stands in the row."""
    pieces = [timeline.piece(token).replace(BLANK, " ") for token in track.tokens]
    text = "".join(pieces)
    if query == query.lower():
        lowered = text.lower()
        text = lowered if len(lowered) == len(text) else text
    places: list[int] = []
    at, end, token = text.find(query), 0, -1
    while at >= 0:
        while end < at + len(query):
            token += 1
            end += len(pieces[token])
        if not places or places[-1] != token:
            places.append(token)
        at = text.find(query, at + 1)
    return places


def _rounds(track: RowTrack) -> list[int]:
    """By token, the round that committed it."""
    first = track.rounds[0] if track.rounds else 0
    rounds = [first] * len(track.tokens)
    before = track.prompt_length
    for number, end in zip(track.rounds, track.ends, strict=True):
        for place in range(before, min(end, len(rounds))):
            rounds[place] = number
        before = end
    return rounds


class Hits:
    """What was found, and which hit is looked at."""

    def __init__(self, query: str, hits: list[Hit], number: int) -> None:
        self.query = query
        self.hits = hits
        self.at = next((at for at, hit in enumerate(hits) if hit.number >= number), 0)

    @property
    def current(self) -> Hit | None:
        return self.hits[self.at] if self.hits else None

    def walk(self, step: int) -> Hit | None:
        """The hit so many further on; after the last comes the first."""
        if self.hits:
            self.at = (self.at + step) % len(self.hits)
        return self.current
