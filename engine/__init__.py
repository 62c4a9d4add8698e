"""The engine: algorithms on tensors, and the records that they leave. It knows no screen.

Data flows one way: engine → records → screen, trace, JSON. The packages, from the bottom:
config, records, text, models, rounds, drafting, methods, microscope, pairs, runs, evaluation,
distill. Each may import those before it in this list.
"""
