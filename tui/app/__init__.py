"""The app: what holds the screens together, themes, preferences, the terminal.

May import tour, screens, widgets, session and view.
"""
