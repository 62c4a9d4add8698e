"""Between the engine's thread and the screen: sources, the control of a run, the playhead.

May import view.
"""
