"""Where the two models come from: the registry of pairs, and how each kind is obtained.

`load` makes a `Pair`. May import microscope and all below it; `registry`, `download` and `hub` need
no torch.
"""
