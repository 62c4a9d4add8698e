"""Runs against each other and against the oracle: verify, compare, fork, bench, check.

May import runs and all below them.
"""
