"""Where the two models come from: the registry of pairs, and how each kind is obtained.

`registry`, `smollm2`, `download` and `hub` need no torch; `toy`, `load` and `export`
are imported only when a pair is loaded.
"""
