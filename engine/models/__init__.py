"""One language model: its forward, its attention, its KV cache, and what it takes in memory.

May import text, records and config. It knows no batch of rows and no method.
"""
