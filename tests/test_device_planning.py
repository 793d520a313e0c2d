"""From a bundle to a plan: which launch each claim is about."""

from __future__ import annotations

from pathlib import Path

from harness.bundle import find
from harness.device.planning import plan_for
from harness.kernels import get


def shapes(root: Path, bundle_id: str) -> dict[str, object]:
    (bundle,) = find(root / "bundles", [bundle_id])
    planned = plan_for(bundle, get(bundle_id), {})
    assert planned.plan is not None
    return {shape.id: shape for shape in planned.plan.shapes}


def test_each_stage_of_a_two_stage_kernel_is_a_launch_of_its_own(repo_root: Path) -> None:
    found = shapes(repo_root, "moe-gemm")
    stages = {name: shape.dims["stage"] for name, shape in found.items()}  # type: ignore[attr-defined]
    assert stages == {
        "captured": "both",
        "captured.stage-1": "1",
        "captured.stage-2-atomic": "2-atomic",
        "captured.stage-2-reduce": "2-reduce",
    }


def test_the_fast_path_is_timed_against_the_scalar_path(repo_root: Path) -> None:
    fast = shapes(repo_root, "softmax")["captured.fast"]
    assert fast.dims["variant"] == "fast"  # type: ignore[attr-defined]
    (baseline,) = fast.baselines  # type: ignore[attr-defined]
    assert round(fast.published[baseline], 4) == 1.0344  # type: ignore[attr-defined]


def test_what_the_publication_leaves_unsaid_is_named_and_not_timed(repo_root: Path) -> None:
    (bundle,) = find(repo_root / "bundles", ["rope"])
    planned = plan_for(bundle, get("rope"), {})
    assert planned.plan is None
    assert planned.left_out == {"stated": "the publication does not say num_tokens"}
