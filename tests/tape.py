"""What a CUDA graph does, on the CPU: it replays operations to the letter.

The same operations on the same tensors, with every number from Python as it was when they
were recorded. Whatever a forward would have to decide anew is thereby found out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

VALUE_DEPENDENT = (
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten.equal.default,
    torch.ops.aten._unique2.default,
)
"""What asks a device for numbers, and so cannot be recorded."""


class Recorder(TorchDispatchMode):
    """Notes every operation with its tensors.

    Raises:
        RuntimeError: an operation that CUDA would not record.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_flag = func is torch.ops.aten.index.Tensor and any(
            isinstance(at, Tensor) and at.dtype == torch.bool for at in args[1]
        )
        if func in VALUE_DEPENDENT or by_flag:
            raise RuntimeError(f"{func} asks for a value")
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    @property
    def shapes(self) -> list[tuple[str, list[tuple[int, ...]]]]:
        """Each operation's name, and the shapes of what it made."""
        return [
            (str(func), [tuple(t.shape) for t in tensors(out)]) for func, _, _, out in self.calls
        ]


class HostWatch(TorchDispatchMode):
    """Notes operations that touch a tensor on the host. Numbers are no tensors: a lone one
    from the host that takes part in arithmetic is a parameter of the kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        taken, made = list(tensors((args, kwargs))), list(tensors(out))
        copies = any(word in str(func) for word in ("copy", "_to_"))
        if any(t.device.type == "cpu" and (t.dim() or copies) for t in (*taken, *made)):
            self.touched.append(str(func))
        return out


class Tape:
    """Stands in for `engine.models.cuda_graphs.Graph`."""

    made = 0
    replayed = 0
    places: tuple[int, ...] = ()

    def __init__(self, compute: Callable[[], None], device: torch.device, shared: Any) -> None:
        with Recorder() as recorder:
            compute()
        self._calls = recorder.calls
        Tape.made += 1

    def replay(self) -> None:
        Tape.replayed += 1
        for func, args, kwargs, out in self._calls:
            taken = {tensor.untyped_storage().data_ptr() for tensor in tensors((args, kwargs))}
            again = func(*args, **kwargs)
            for then, now in zip(tensors(out), tensors(again), strict=True):
                if then.untyped_storage().data_ptr() not in taken:  # neither a view nor in place
                    then.copy_(now)


def tensors(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
