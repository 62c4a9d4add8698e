"""The decoding core: tensors and algorithms. It knows no screen.

Data flows one way: engine → records → screen, trace, JSON. `engine.records`,
`engine.settings` and `engine.errors` import no torch; everything that does is
imported only when a run starts.
"""
