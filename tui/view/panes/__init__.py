"""The other panes, one file each: records in, lines out."""
