"""Where a run came from: when, from which tree, with which pins. Written once, when a run begins.

Knows git and pins.yaml as files; nothing of devices or samples.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

__all__ = ["COMMIT_VARIABLE", "provenance"]

COMMIT_VARIABLE = "HARNESS_COMMIT"
"""Names the commit of a tree that travelled without its git directory."""

ROOT = Path(__file__).resolve().parents[2]


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def provenance() -> dict[str, Any]:
    """created (UTC), git commit and whether the tree differs from it, sha256 of pins.yaml; "unknown" where
    untold."""
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no") if commit else None
    pins = ROOT / "pins.yaml"
    return {
        "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit or os.environ.get(COMMIT_VARIABLE, "unknown"),
        "modified": bool(changed) if changed is not None else "unknown",
        "pins_sha256": hashlib.sha256(pins.read_bytes()).hexdigest() if pins.exists() else "unknown",
    }
