"""What drafts besides a plain draft model, and how many tokens: prompt lookup, n-grams, `auto`.

`build` puts a run's drafter and policy together. May import rounds and what rounds may.
"""
