"""The decoding core: tensors and algorithms. It knows no screen.

Data flows one way: engine → records → screen, trace, JSON. `engine.records.schema`,
`engine.config.settings` and `engine.config.errors` import no torch; everything that does is
imported only when a run starts.
"""
