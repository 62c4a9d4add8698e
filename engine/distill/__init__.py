"""Making a draft model for a target by self-distillation, and keeping it on the disk.

`run.distill` is the whole of it; `package` writes and reads finished drafts.
"""
