"""Checks published GPU-kernel claims: bundles, claims, evidence, judge, verdicts."""

__version__ = "0.1.0"
