"""The command line: options, results, and one file for each command in `commands`.

May import all of `tui`. Nothing here imports torch before a command needs it.
"""
