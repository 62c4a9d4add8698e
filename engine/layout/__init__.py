"""How the state of a batch lies in memory: the seam at which the methods differ most.

`rectangle`: left-padded, realigned by δ after each round (eqspec, rollback).
`slots`: every row owns a slot and writes at its own offset (slotspec).
`base`: what the two models' caches have in common, and the interface.
"""
