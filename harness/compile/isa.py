"""ISA listings: reading them, their normal form and hash, what instructions they hold, how two of them
differ.

The normal form of an instruction: white space collapsed to one blank, the operand of a branch replaced
by `L`, a literal ` offset:0` dropped (LLVM's printers disagree on it). The hash of a listing is the
sha256 of its instructions' normal forms joined by newlines. Knows text only; must not know ELF, claims
or bundles.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache

from harness.errors import HarnessError

__all__ = [
    "Difference",
    "Listing",
    "classify",
    "difference",
    "digest",
    "full_digest",
    "highest_registers",
    "histogram",
    "normal_form",
    "parse_assembly",
    "parse_capture",
]


@dataclass(frozen=True)
class Listing:
    """One kernel's instructions.

    text: as written, white space collapsed. addresses: ELF virtual address of each, or None where unknown (an
    assembly text has none). origin: `assembly`, `code object` or `capture`.
    """

    symbol: str
    text: tuple[str, ...]
    addresses: tuple[int, ...] | None
    origin: str

    @property
    def normal(self) -> tuple[str, ...]:
        """The normal form of each instruction."""
        return tuple(map(normal_form, self.text))


def normal_form(text: str) -> str:
    """The normal form of one instruction whose white space is collapsed already."""
    if text.startswith(("s_cbranch", "s_branch")):
        return text.split(" ", 1)[0] + " L"
    if " offset:0" in text:
        return _ZERO_OFFSET.sub("", text)
    return text


_ZERO_OFFSET = re.compile(r" offset:0(?![\w.])")


def digest(normal: Iterable[str]) -> str:
    """sha256 (hex) of instructions in normal form, joined by newlines without a trailing one."""
    return hashlib.sha256("\n".join(normal).encode()).hexdigest()


def full_digest(listing: Listing) -> str:
    """sha256 (hex) of `address instruction` lines with branch displacements: two code objects, not only
    two texts.

    Raises ValueError where the listing has no addresses.
    """
    if listing.addresses is None:
        raise ValueError(f"{listing.symbol}: a listing from {listing.origin} has no addresses")
    lines = (
        f"{address} {_ZERO_OFFSET.sub('', text)}"
        for address, text in zip(listing.addresses, listing.text, strict=True)
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def parse_assembly(source: str, origin: str, symbol: str | None = None) -> Listing:
    """The instructions of one kernel of an AMDGPU assembly text (LLVM's `.s`).

    `symbol` None takes the only kernel. HarnessError where there is none, or more than one and no choice.
    """
    names = re.findall(r"^\s*\.amdhsa_kernel\s+(\S+)", source, re.MULTILINE)
    if symbol is None:
        if len(names) != 1:
            what = f"{len(names)} kernels ({', '.join(names)})" if names else "no .amdhsa_kernel"
            raise HarnessError(f"{origin}: {what}", remedy="name an assembly text of one AMDGPU kernel")
        symbol = names[0]
    start = re.search(rf"^{re.escape(symbol)}:", source, re.MULTILINE)
    if start is None:
        raise HarnessError(f"{origin}: no label {symbol}")
    end = re.compile(r"^\.Lfunc_end\d+:|^\s*\.size\s", re.MULTILINE).search(source, start.end())
    body = source[start.end() : end.start() if end else len(source)]
    return Listing(symbol, tuple(instructions(body)), None, "assembly")


def instructions(body: str) -> Iterable[str]:
    """The instructions of assembly lines, white space collapsed; labels, directives and comments dropped.

    A `.section` or `.text` directive inside a body switches sections (LLVM puts the descriptor in the
    middle).
    """
    code = True
    for line in body.split("\n"):
        if ";" in line:
            line = line.split(";", 1)[0]
        words = line.split()
        if not words:
            continue
        first = words[0]
        if first[0] == ".":
            if first == ".section":
                code = words[1].startswith(".text")
            elif first == ".text":
                code = True
        elif code and first[-1] != ":":
            yield " ".join(words)


def parse_capture(data: bytes, origin: str) -> Listing:
    """The listing of a thread trace's `code.json` (`code` rows: 0 text, 5 ELF address). HarnessError on
    bad data.
    """
    import orjson

    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise HarnessError(f"{origin}: not JSON ({error})") from error
    rows = parsed.get("code") if isinstance(parsed, dict) else None
    if not isinstance(rows, list) or not rows:
        raise HarnessError(
            f"{origin}: no `code` rows: an empty capture",
            remedy="capture again with another SE mask or target CU",
        )
    try:
        labels = [row[0] for row in rows if row[0].startswith(";")]
        kept = [(" ".join(row[0].split()), int(row[5])) for row in rows if not row[0].startswith(";")]
    except (TypeError, IndexError, AttributeError, ValueError) as error:
        raise HarnessError(f"{origin}: a `code` row is not [text, ..., address, ...] ({error})") from error
    symbol = labels[0].lstrip("; ") if labels else ""
    return Listing(symbol, tuple(text for text, _ in kept), tuple(address for _, address in kept), "capture")


def highest_registers(text: Iterable[str]) -> tuple[int, int, int]:
    """Highest v, a and s register index that a listing names; -1 for none."""
    highest = {"v": -1, "a": -1, "s": -1}
    for match in re.finditer(r"\b([vas])(?:\[\d+:(\d+)\]|(\d+)\b)", "\n".join(text)):
        kind, index = match.group(1), int(match.group(2) or match.group(3))
        highest[kind] = max(highest[kind], index)
    return highest["v"], highest["a"], highest["s"]


_DPP = re.compile(r" (?:quad_perm:|row_|wave_|bank_mask:)")
_MFMA = re.compile(r"v_s?mfmac?_(?:scale_|ld_scale_)?(\w+?)_(\d+x\d+x\d+)_?(.*)")
_WIDTH = {
    "ubyte": 8, "sbyte": 8, "byte": 8, "ushort": 16, "sshort": 16, "short": 16,
    "dword": 32, "dwordx2": 64, "dwordx3": 96, "dwordx4": 128,
}  # fmt: skip
_LDS_WIDTH = {
    "b8": 8, "u8": 8, "i8": 8, "b16": 16, "u16": 16, "i16": 16, "b32": 32, "b64": 64, "b96": 96, "b128": 128,
}  # fmt: skip
_TRANSCENDENTAL = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")


def histogram(text: Iterable[str]) -> dict[str, int]:
    """How many instructions of each class, most frequent first (`classify`)."""
    return dict(Counter(map(_class_of, text)).most_common())


def _class_of(text: str) -> str:
    mnemonic, _, operands = text.partition(" ")
    if mnemonic[0] == "b":
        return classify(mnemonic, "lds" if operands.endswith(" lds") or " lds " in operands else "")
    if mnemonic[0] == "v" and ":" in operands and _DPP.search(operands):
        return classify(mnemonic, "dpp")
    return classify(mnemonic, "")


@cache
def classify(mnemonic: str, modifier: str = "") -> str:
    """The class of an instruction by its mnemonic and, where the operands matter, a modifier (`lds`,
    `dpp`).
    """
    if mnemonic.startswith("s_"):
        return _scalar(mnemonic)
    if mnemonic.startswith("ds_"):
        return _lds(mnemonic)
    if mnemonic.startswith(("buffer_", "global_", "flat_", "scratch_")):
        return _memory(mnemonic, modifier)
    if matched := _MFMA.match(mnemonic):
        types = "_".join(part for part in (matched.group(3), matched.group(1)) if part)
        return f"mfma {matched.group(2)} {types}"
    if modifier == "dpp" or mnemonic.endswith("_dpp"):
        return "cross-lane dpp"
    if mnemonic.startswith("v_permlane"):
        return "cross-lane permlane"
    if mnemonic.startswith(("v_readlane", "v_readfirstlane", "v_writelane")):
        return "cross-lane readlane"
    if mnemonic.startswith(_TRANSCENDENTAL):
        return "transcendental"
    if mnemonic.startswith("v_accvgpr"):
        return "accumulator move"
    if mnemonic == "v_nop":
        return "nop"
    return "valu" if mnemonic.startswith("v_") else "other"


def _scalar(mnemonic: str) -> str:
    if mnemonic.startswith("s_waitcnt"):
        return "wait"
    if mnemonic.startswith("s_barrier"):
        return "barrier"
    if mnemonic == "s_nop":
        return "nop"
    if mnemonic.startswith(("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call", "s_endpgm")):
        return "branch"
    if mnemonic.startswith(
        ("s_load", "s_buffer_", "s_store", "s_dcache", "s_scratch", "s_atomic", "s_memtime")
    ):
        return "smem"
    return "salu"


def _lds(mnemonic: str) -> str:
    for name in ("ds_bpermute", "ds_permute", "ds_swizzle"):
        if mnemonic.startswith(name):
            return f"cross-lane {name}"
    kind = "read" if mnemonic.startswith("ds_read") else "write" if mnemonic.startswith("ds_write") else None
    if kind is None:
        return "lds atomic"
    parts = mnemonic.split("_")
    width = next((_LDS_WIDTH[part] for part in parts if part in _LDS_WIDTH), 0)
    twice = 2 if parts[1] in ("read2", "write2", "read2st64", "write2st64") else 1
    name = f"lds {kind} {width * twice}" if width else f"lds {kind}"
    return f"{name} transpose" if "tr" in parts else name


def _memory(mnemonic: str, modifier: str) -> str:
    parts = mnemonic.split("_")
    width = next((_WIDTH[part] for part in reversed(parts) if part in _WIDTH), 16 if "d16" in parts else 0)
    if "atomic" in parts:
        return "vmem atomic"
    kind = "load" if "load" in parts else "store" if "store" in parts else None
    if kind is None:
        return "vmem cache control"
    if kind == "load" and (modifier == "lds" or "lds" in parts):
        return f"lds-dma {width}"
    return f"vmem {kind} {width}"


@dataclass(frozen=True)
class Difference:
    """How listing B differs from listing A, in normal form.

    count: instructions that differ (where lengths differ: by a longest-match alignment). first: index in A of
    the first that differs. left, right: A's and B's instruction there, None beyond an end. before,
    after: up to two neighbours in A. constants_only: same length, and every pair differs in literal
    numbers alone, which means the same program for another shape.
    """

    count: int
    first: int
    left: str | None
    right: str | None
    before: tuple[str, ...]
    after: tuple[str, ...]
    constants_only: bool
    pairs: tuple[tuple[int, str, str], ...] = ()


def difference(a: Sequence[str], b: Sequence[str]) -> Difference | None:
    """The difference of two listings (in normal form, or as written to count branch targets too), or None."""
    if len(a) == len(b):
        where = [index for index, (left, right) in enumerate(zip(a, b, strict=True)) if left != right]
        if not where:
            return None
        constants = all(_without_constants(a[index]) == _without_constants(b[index]) for index in where)
        pairs = tuple((index, a[index], b[index]) for index in where)
        return _described(a, b, where[0], len(where), constants, pairs)
    shorter = min(len(a), len(b))
    first = next((index for index in range(shorter) if a[index] != b[index]), shorter)
    tail = 0
    while tail < shorter - first and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    blocks = SequenceMatcher(None, a[first : len(a) - tail], b[first : len(b) - tail]).get_opcodes()
    count = sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in blocks if tag != "equal")
    return _described(a, b, first, count, False)


def _described(
    a: Sequence[str],
    b: Sequence[str],
    first: int,
    count: int,
    constants: bool,
    pairs: tuple[tuple[int, str, str], ...] = (),
) -> Difference:
    return Difference(
        count=count,
        first=first,
        left=a[first] if first < len(a) else None,
        right=b[first] if first < len(b) else None,
        before=tuple(a[max(0, first - 2) : first]),
        after=tuple(a[first + 1 : first + 3]),
        constants_only=constants,
        pairs=pairs,
    )


_REGISTERS_OR_CONSTANT = re.compile(
    r"\[[^\]]*\]|(?<![\w.])-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?!\w)"
)


def _without_constants(text: str) -> str:
    """`text` with each literal number replaced by `#`; register ranges stay."""
    return _REGISTERS_OR_CONSTANT.sub(lambda match: match.group() if match.group()[0] == "[" else "#", text)
