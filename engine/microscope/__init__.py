"""Whoever looks on: invariants, the K/V audit, probabilities, the record of each round.

`observer` is the one that the round calls. May import methods and all below them.
"""
