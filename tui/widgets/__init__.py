"""The panes: each draws one view of (records, cursor)."""
