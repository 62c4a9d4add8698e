"""Records indexed as they come, so that any round is cheap to look at; and what a pane sees."""
