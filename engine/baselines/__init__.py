"""The published broken baselines, as choices at the seams of the round loop.

`bsp` masks rejected tokens and leaves positions to the library; `dsd` pads on the left
and takes a draft token for the bonus. Both are reproduced token by token.
"""
