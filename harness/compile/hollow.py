"""Large tensors without contents, for a launch that is compiled and never run.

A compile looks at shapes, strides and dtypes; filling gigabytes to be ignored costs minutes. Inside
`hollow_tensors()` any torch operation on a large tensor gives memory that was allocated and never
touched, and small tensors (routing tables, block tables, scalars) are computed as ever. Must not be
used where a kernel runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["LARGE", "hollow_tensors"]

LARGE = 1 << 20
"""Elements from which on a tensor is left hollow."""


@contextmanager
def hollow_tensors(large: int = LARGE) -> Iterator[None]:
    """Torch operations in this block leave tensors of `large` or more elements without contents."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter, tree_map

    def is_large(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.numel() >= large

    def to_meta(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
        if isinstance(value, torch.device):
            return torch.device("meta")
        return value

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.is_view:
            return func(*args, **kwargs)
        inputs = [value for value in tree_iter((args, kwargs)) if isinstance(value, torch.Tensor)]
        if inputs and not any(is_large(value) for value in inputs):
            return func(*args, **kwargs)
        try:
            shapes = func(*tree_map(to_meta, args), **_without_generator(tree_map(to_meta, kwargs)))
        except (RuntimeError, NotImplementedError, TypeError):
            return func(*args, **kwargs)  # needs the values (item, nonzero) or has no shape rule
        outputs = [value for value in tree_iter(shapes) if isinstance(value, torch.Tensor)]
        if not inputs and not any(is_large(value) for value in outputs):
            return func(*args, **kwargs)
        if func._schema.is_mutable and inputs:
            return _mutated(func, args, kwargs)
        return tree_map(_hollow, shapes)

    def _hollow(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cpu")
        return value

    def _mutated(func: Any, args: Any, kwargs: Any) -> Any:
        """What an in-place operation returns: the arguments it writes, untouched."""
        written = [
            kwargs[argument.name] if argument.name in kwargs else args[index]
            for index, argument in enumerate(func._schema.arguments)
            if argument.alias_info is not None
            and argument.alias_info.is_write
            and (argument.name in kwargs or index < len(args))
        ]
        return written[0] if len(written) == 1 else tuple(written)

    def _without_generator(kwargs: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in kwargs.items() if name != "generator"}

    hollow = type("Hollow", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})
    with hollow():
        yield
