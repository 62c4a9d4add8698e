"""The terminal side: command line, screens and widgets. No torch at start-up."""
