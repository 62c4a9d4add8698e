"""A second device that needs no hardware: tensors that say they are on it, and refuse to meet
those of the CPU.

A tensor there holds an ordinary one and calls itself one of `ELSEWHERE`. Every operation is
done on what it holds; one that is given tensors of both devices is an error, as it is on
real ones. Only copies cross.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

ELSEWHERE = torch.device("lazy")
"""A device that torch knows the name of and no code treats as a special one; nothing is ever
computed on it."""

CPU = torch.device("cpu")
COPIES = ("aten::_to_copy", "aten::to", "aten::copy_")


class There(torch.Tensor):
    """A tensor on the other device."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> There:
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=ELSEWHERE,
        )
        made.inner = inner
        return made

    def tolist(self) -> Any:
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


class SecondDevice(TorchDispatchMode):
    """While it is on, tensors can be sent to `ELSEWHERE` and made there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Do an operation where its tensors are."""
    leaves = tree_flatten((args, kwargs))[0]
    tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
    there = [t for t in tensors if isinstance(t, There)]
    # a number in a tensor of no dimension may go anywhere, as with real devices
    here = [t for t in tensors if not isinstance(t, There) and t.dim()]
    if there and here and func._schema.name not in COPIES:
        raise RuntimeError(f"{func}: expected all tensors to be on the same device")
    named = [value for value in leaves if isinstance(value, torch.device)]
    if named:
        outside = named[0] == ELSEWHERE
    else:
        outside = bool(tensors and isinstance(tensors[0], There)) or bool(there and not here)
    known = {id(t.inner): t for t in there}
    plain_args, plain_kwargs = tree_map(_plain, (args, kwargs))
    found = func(*plain_args, **plain_kwargs)

    def placed(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        if id(result) in known and not named:  # done in place
            return known[id(result)]
        if any(result is t or result is getattr(t, "inner", None) for t in tensors):
            result = result.clone() if named else result  # what crosses is a copy
        return There(result) if outside else result

    return tree_map(placed, found)


def _plain(value: Any) -> Any:
    if isinstance(value, There):
        return value.inner
    return CPU if isinstance(value, torch.device) else value
