"""`harness isa A [B]`: counts, classes and hash of one listing, or the first difference of two.

Knows how to say it. What a listing is, and how two differ, is `harness.compile.isa`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.command import Outcome, Reporter
from harness.compile.isa import Difference, Listing, difference, digest, full_digest, histogram
from harness.compile.listings import load_listing
from harness.verdict import ExitCode

__all__ = ["configure", "run"]

MANY = 100
"""Up to this many differing instructions are all shown."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Two files and the kernel to take from each."""
    parser.add_argument("a", type=Path, metavar="A", help=".s, .hsaco, or a thread trace's code.json")
    parser.add_argument("b", type=Path, nargs="?", metavar="B", help="a second one to compare A with")
    parser.add_argument("--symbol", help="which kernel, where a file holds several")
    parser.add_argument("--offline", action="store_true", help="fetch nothing")


def run(args: argparse.Namespace, reporter: Reporter) -> Outcome:
    """Describe A; with B, exit 0 where they are identical and 10 where not."""
    a = load_listing(args.a, args.symbol, offline=args.offline)
    data: dict[str, Any] = _described(a)
    data.update(identical=None, differences=None, first_difference=None)
    lines = _text(str(args.a), a, data)
    if args.b is None:
        return Outcome(ExitCode.OK, "\n".join(lines), data)
    b = load_listing(args.b, args.symbol, offline=args.offline)
    data["b"] = _described(b)
    found = difference(a.normal, b.normal)
    placed = _same_places(a, b) if found is None else None
    data["identical"] = found is None and placed is not False
    data["same_addresses_and_displacements"] = placed
    data["differences"] = 0 if found is None else found.count
    data["constants_only"] = None if found is None else found.constants_only
    data["first_difference"] = None if found is None else _difference(found, a, b)
    data["all_differences"] = [] if found is None else [list(pair) for pair in found.pairs[:MANY]]
    lines += _text(str(args.b), b, data["b"])
    lines += _verdict(found, placed, a, b)
    return Outcome(ExitCode.OK if data["identical"] else ExitCode.DIFFERS, "\n".join(lines), data)


def _described(listing: Listing) -> dict[str, Any]:
    return {
        "symbol": listing.symbol,
        "origin": listing.origin,
        "instructions": len(listing.text),
        "sha256": digest(listing.normal),
        "code_sha256": full_digest(listing) if listing.addresses is not None else None,
        "histogram": histogram(listing.text),
    }


def _same_places(a: Listing, b: Listing) -> bool | None:
    """Whether every instruction lies equally far from the first and every branch jumps equally far;
    None: unknown.
    """
    if not a.addresses or not b.addresses:
        return None
    steps_a = [address - a.addresses[0] for address in a.addresses]
    steps_b = [address - b.addresses[0] for address in b.addresses]
    jumps = all(
        left == right
        for left, right in zip(a.text, b.text, strict=True)
        if left.startswith(("s_branch", "s_cbranch"))
    )
    return steps_a == steps_b and jumps


def _difference(found: Difference, a: Listing, b: Listing) -> dict[str, Any]:
    return {
        "index": found.first,
        "a": found.left,
        "b": found.right,
        "address_a": a.addresses[found.first] if a.addresses and found.left is not None else None,
        "address_b": b.addresses[found.first] if b.addresses and found.right is not None else None,
        "before": list(found.before),
        "after": list(found.after),
    }


def _text(name: str, listing: Listing, data: dict[str, Any]) -> list[str]:
    classes = ", ".join(f"{count} {label}" for label, count in data["histogram"].items())
    return [
        f"{name}: {listing.symbol}, {data['instructions']} instructions ({listing.origin})",
        f"  sha256 {data['sha256']}",
        f"  {classes}",
    ]


def _verdict(found: Difference | None, placed: bool | None, a: Listing, b: Listing) -> list[str]:
    if found is None:
        if placed is None:
            return ["identical, instruction for instruction (one of them has no addresses to compare)"]
        if placed:
            return ["identical: instructions, addresses relative to the first, branch displacements"]
        return ["the same instructions, at other addresses or with other branch displacements"]
    kind = "; only constants differ: the same program for another shape" if found.constants_only else ""
    lines = [f"{found.count} instructions differ, the first at {found.first}{kind}"]
    lines += [f"    {line}" for line in found.before]
    lines += [f"  - {found.left or '(end)'}", f"  + {found.right or '(end)'}"]
    lines += [f"    {line}" for line in found.after]
    if 1 < len(found.pairs) <= MANY:
        lines.append("all of them:")
        lines += [f"  {index}: {left}  |  {right}" for index, left, right in found.pairs]
    return lines
