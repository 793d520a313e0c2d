"""What a claim compiles besides the kernel as published: patched private copies, other shapes, the host path.

A patch is a regular expression and its replacement, applied to a copy in the cache; it must match
exactly once, so a source that is not the expected one is refused. Upstream's tree is never written.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.bundle import Claim
from harness.compile.cache import Cache
from harness.errors import HarnessError
from harness.sources import SourceTree

__all__ = ["ALWAYS", "PUBLISHED", "Patch", "Variant", "patched", "variant_of"]


@dataclass(frozen=True)
class Patch:
    """In `file`, the one place where `pattern` matches becomes `replacement`."""

    file: str
    pattern: str
    replacement: str


@dataclass(frozen=True)
class Variant:
    """One way to compile a bundle's kernel.

    name: "" for the kernel as published. mode: "launch" (the kernel) or "dispatch" (FlyDSL's host
    path). patches: made to a private copy of the source. shapes: dimensions laid over the workload's,
    each a compile of its own.
    """

    name: str
    mode: str = "launch"
    patches: tuple[Patch, ...] = ()
    shapes: tuple[Mapping[str, Any], ...] = (MappingProxyType({}),)
    layers: tuple[str, ...] = ()


PUBLISHED = Variant("")

_SOFTMAX = "kernels/softmax_kernel.py"
_ENABLE = Patch(_SOFTMAX, r"\bFalse and ", "")
_FLAGS = Patch(_SOFTMAX, r"(exp2\(scaled, fastmath=)True\)", r"\1fm_fast)")
# From 64 experts on: with fewer, a row lies in few lanes, and 0 (8 and 16 experts) or 10 (32, topk 4)
# exchanges through ds_bpermute remain.
_GATING = tuple(
    MappingProxyType({"experts": experts, "topk": topk})
    for experts, topk in ((64, 2), (64, 6), (128, 6), (128, 8), (256, 8))
)

VARIANTS: Mapping[tuple[str, str], Variant] = MappingProxyType(
    {
        ("softmax", "fast"): Variant("fast", patches=(_ENABLE, _FLAGS)),
        ("softmax", "fast, condition only"): Variant("fast, condition only", patches=(_ENABLE,)),
        ("fp8-gemm-4wave", "dispatch"): Variant(
            "dispatch",
            mode="dispatch",
            layers=("0bd41df49c55500dde6e033ba13c5ed85ee23818", "801fc4e6d798c1e2bdba5c93acf515e1630ea970"),
        ),
        ("topk-gating", "by shape"): Variant("by shape", shapes=_GATING),
    }
)

ALWAYS: Mapping[str, tuple[Variant, ...]] = MappingProxyType(
    {
        "moe-gemm": (Variant("stage 2", shapes=(MappingProxyType({"stage": "2-atomic"}),)),),
        "moe-blockscale": (Variant("stage 2", shapes=(MappingProxyType({"stage": "2"}),)),),
    }
)
"""Variants that belong to a bundle whatever its claims say: its second kernel, at the first workload."""


def variant_of(bundle: str, claim: Claim) -> Variant:
    """The variant that `claim` of the bundle called `bundle` is about.

    The claim that fp8_gemm_4wave does not compile is about its test, which goes through FlyDSL's host
    path; the variant "direct" is the kernel itself.
    """
    name = claim.fields.get("variant")
    if bundle == "fp8-gemm-4wave" and claim.kind == "compiles" and name is None:
        name = "dispatch"
    return VARIANTS.get((bundle, str(name)), PUBLISHED)


def patched(tree: SourceTree, variant: Variant, cache: Cache) -> Path:
    """A private copy of `tree`'s kernels with the patches of `variant`; `tree` itself where there is none.

    HarnessError where a patch does not match exactly once.
    """
    if not variant.patches:
        return tree.path
    parts = repr((variant.patches, tree.commit, str(tree.path)))
    name = f"{tree.commit}-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"

    def make(directory: Path) -> None:
        shutil.copytree(
            tree.path / "kernels", directory / "kernels", ignore=shutil.ignore_patterns("__pycache__")
        )
        for patch in variant.patches:
            path = directory / patch.file
            if not path.is_file():
                raise HarnessError(f"{tree.origin}: {patch.file} is missing")
            changed, count = re.subn(patch.pattern, patch.replacement, path.read_text())
            if count != 1:
                once = f"{patch.pattern!r} once (found {count})"
                raise HarnessError(
                    f"{tree.origin}: {patch.file}: the variant {variant.name!r} expects {once}",
                    remedy=f"use {tree.upstream.name} at {tree.commit}",
                )
            path.write_text(changed)

    return cache.directory("variants", name, make=make)
