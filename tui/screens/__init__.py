"""The app's screens, one file each, its opener in it. They know each other by name only.

A screen asks the app for another one (`tui.app.openers`). May import widgets, session and view.
"""
