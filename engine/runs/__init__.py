"""A run as a stream of records, the thread that pulls it, and changes between two rounds.

May import pairs and all below them.
"""
