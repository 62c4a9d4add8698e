"""The methods, one file each: what it does differently, and `METHOD`, its choice at each step.

May import rounds, models, records, text and config. `engine.config.methods` lists the names.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from engine.config.methods import check_method
from engine.rounds.method import Method


def method_named(name: str, *, strict: bool = False, fault: str = "") -> Method:
    """Return a method by name.

    Args:
        strict: whether the run is bit-exact (`--strict`).
        fault: one thing that is done wrong (`engine.config.faults`), on eqspec.

    Raises:
        UserError: there is no such method.
    """
    check_method(name)
    method: Method = import_module(f"engine.methods.{name}").METHOD
    if strict and method.strict is not None:
        return method.strict
    if fault:
        seams = import_module("engine.methods.faulty").SEAMS
        return replace(method, **seams[fault])
    return method
