"""`/` and what comes of it: from hit to hit, by round and row."""

from __future__ import annotations

from tui.screens.ask import AskScreen
from tui.screens.run import RunScreen
from tui.view.state.search import Hits, find


def open_search(screen: RunScreen) -> None:
    """Ask for a text, and go to where it stands next."""

    def searched(query: str | None) -> None:
        if not query:
            return
        frame = screen.frame_now()
        screen.hits = Hits(query, find(frame.timeline, query), frame.cursor.round)
        _show(screen)

    before = screen.hits.query if screen.hits is not None else ""
    screen.app.push_screen(AskScreen("search", "a text, or token ids: #12 #7", before), searched)


def walk_hits(screen: RunScreen, step: int) -> None:
    """To another hit; what was made since is looked through as well."""
    hits = screen.hits
    if hits is None:
        open_search(screen)
        return
    now = find(screen.frame_now().timeline, hits.query)
    if now != hits.hits:
        current = hits.current
        hits.hits = now
        hits.at = now.index(current) if current in now else 0
    hits.walk(step)
    _show(screen)


def _show(screen: RunScreen) -> None:
    hits = screen.hits
    assert hits is not None
    screen.app.clear_notifications()
    hit = hits.current
    if hit is None:
        screen.notify(f"“{hits.query}” is nowhere", timeout=3, markup=False)
        return
    screen.playhead.jump(hit.number, screen.last)
    screen.selected = hit.row
    screen.show_frame()
    words = (
        f"{hits.at + 1} of {len(hits.hits)}: row {hit.row}, token {hit.place}, enter inspects it"
    )
    screen.notify(words, title=f"“{hits.query}”", timeout=3, markup=False)
