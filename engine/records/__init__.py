"""What crosses from the engine to the screen, the trace and the JSON: facts, never sentences.

`schema`, `row` and `violation` define the records, `fold` and `match` add them up, `trace` writes
and reads them. May import config. Needs no torch.
"""
