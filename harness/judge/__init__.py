"""The judge: statistics and decision rules as pure functions. No I/O, no torch, nothing of bundles or
devices.

`rule` is one interval and one decision, `sequential` the looks, `trend` the test of stationarity, `many`
several shapes at once. Figures on how often it errs: docs/judge.md, made by tools/judge_table.py.
"""
