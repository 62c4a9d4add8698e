"""`python -m tui`, the same as the command."""

from tui.cli.main import main

main()
