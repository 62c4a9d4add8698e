"""`python -m tui`, the same as the command."""

from tui.cli import main

main()
