"""Making a draft model for a target by self-distillation. What runs a model imports none of it.

`run.distill` is the whole of it. May import all of the engine.
"""
