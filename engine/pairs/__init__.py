"""Where the two models come from: the registry of pairs, and how each kind is obtained.

Nothing here imports torch at module level except `engine.pairs.toy` and
`engine.pairs.load`, which are imported only when a pair is loaded.
"""
