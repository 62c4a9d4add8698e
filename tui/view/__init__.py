"""From records and a cursor to what a pane shows: plain functions, no screen."""
