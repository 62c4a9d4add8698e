"""Another engine's tokens against the oracle, and the mistake that explains each difference.

`outputs` reads the file, `check` compares, `hypotheses` lists the mistakes that are tried.
"""
