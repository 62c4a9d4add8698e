"""From records and a cursor to lines of styled text: plain functions, no screen.

`sentences` makes every sentence about a record. Imports nothing else of `tui`.
"""
