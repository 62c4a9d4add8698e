"""What a run is asked to do, and what may go wrong: settings, errors, devices, paths, names.

Imports nothing else of the engine. Only `device` needs torch.
"""
