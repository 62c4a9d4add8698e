"""The round, written once: choose, draft, verify, accept, synchronise; and its interfaces.

`round` is the loop. A method supplies the parts (`method`): layout, schedule, drafter, acceptance,
row. May import models, text, records and config.
"""
