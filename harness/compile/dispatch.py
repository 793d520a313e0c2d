"""FlyDSL's fast host dispatch, tried without code generation and without a GPU.

`flyc.compile(launcher, arguments...)` compiles, then packs the arguments into a reusable call state.
Whether it can is decided by the arguments' types alone. Here the launcher's call is replaced by one
that binds the arguments and generates nothing, so that `flyc.compile` itself decides and raises its own
error. Runs in a worker process only.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__all__ = ["try_dispatch"]


def try_dispatch(launcher: Any, arguments: tuple[Any, ...]) -> None:
    """Ask FlyDSL for the call state of `launcher` on `arguments`. Raises what FlyDSL raises."""
    import flydsl.compiler as flyc
    from flydsl.compiler import jit_function

    artifact = SimpleNamespace(_get_func_exe=lambda: None)

    def bind_only(self: Any, *given: Any) -> None:
        self._ensure_sig()
        if hasattr(self, "_ensure_cache_manager"):
            self._ensure_cache_manager()
        bound = self._sig.bind(*given)
        bound.apply_defaults()
        key = getattr(self, "_build_full_cache_key", None) or self._make_cache_key  # before 0.2.0
        self._last_compiled = (key(bound.arguments), artifact)

    jit_function.JitFunction.__call__ = bind_only
    flyc.compile(launcher, *arguments)
