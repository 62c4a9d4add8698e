"""Textual widgets: each paints what a function of `tui.view` gives it.

May import session and view.
"""
