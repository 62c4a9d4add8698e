"""The lease of a loaded pair: one thread at a time may run its models.

The main run, a comparison, a fork, the oracle and a check each have a thread, and share the
models of one pair. A model keeps state while it computes (the hidden states that a feature
draft reads, for one), so two forwards at once would destroy each other. Whoever runs a round
or prefills takes the lease for that long and gives it back: threads that all want rounds take
turns, and a paused thread holds nothing.
"""

from __future__ import annotations

import threading
from collections import deque


class Lease:
    """A lock that is handed on in the order of asking; its owner may take it again.

    A plain lock is not fair: the thread that gives it back usually gets it again, and another
    one would wait for as long as that thread runs.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me, ticket = threading.get_ident(), object()
        with self._changed:
            if self._owner != me:
                self._waiting.append(ticket)
                try:
                    self._changed.wait_for(
                        lambda: self._owner is None and self._waiting[0] is ticket
                    )
                    self._owner = me
                finally:  # also where Ctrl-C interrupts the wait
                    self._waiting.remove(ticket)
                    self._changed.notify_all()
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._owner = None
                self._changed.notify_all()
