# SPDX-License-Identifier: Apache-2.0
"""Operands of the assembler's instructions: registers, addresses in memory, and expressions.

``assembler.py`` parses each operand of a line once, and evaluates expressions again in each round,
since the addresses of labels move until all jumps have their length.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass

from verbena.host.errors import AssemblyError

_NUMBERED = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"]
_BYTES = ["al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil"]


@dataclass(frozen=True)
class Register:
    """A register: its name, number, size in bytes, and kind (general, xmm or control)."""

    name: str
    number: int
    size: int
    kind: str = "general"

    @property
    def is_high(self) -> bool:
        """AH, CH, DH or BH, which no instruction with a REX prefix can name."""
        return self.name in ("ah", "ch", "dh", "bh")

    @property
    def needs_rex(self) -> bool:
        """SPL, BPL, SIL or DIL, which need a REX prefix."""
        return self.name in ("spl", "bpl", "sil", "dil")


def _registers() -> dict[str, Register]:
    found: list[Register] = []
    for number, name in enumerate(_NUMBERED):
        found += [
            Register("r" + name, number, 8),
            Register("e" + name, number, 4),
            Register(name, number, 2),
            Register(_BYTES[number], number, 1),
        ]
    found += [Register(name, 4 + i, 1) for i, name in enumerate(["ah", "ch", "dh", "bh"])]
    for number in range(8, 16):
        sizes = {"": 8, "d": 4, "w": 2, "b": 1}
        found += [Register(f"r{number}{end}", number, size) for end, size in sizes.items()]
    found += [Register(f"xmm{number}", number, 16, "xmm") for number in range(16)]
    found += [Register(f"cr{number}", number, 8, "control") for number in (0, 2, 3, 4)]
    return {register.name: register for register in found}


REGISTERS = _registers()
SIZES = {"byte": 1, "word": 2, "dword": 4, "qword": 8, "xmmword": 16}


@dataclass(frozen=True)
class Expression:
    """A number, or a sum of labels and numbers."""

    tree: ast.expr
    text: str

    @property
    def is_constant(self) -> bool:
        """It has no label in it."""
        return not self.names

    @property
    def names(self) -> set[str]:
        """The labels in it."""
        return {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}

    def value(self, labels: Mapping[str, int]) -> int:
        """The number; AssemblyError for a label that there is not."""
        return _evaluate(self.tree, labels, self.text)


@dataclass(frozen=True)
class Address:
    """``[base + index * scale + displacement]``; ``size`` is 0 where the line does not say it."""

    base: Register | None
    index: Register | None
    scale: int
    displacement: Expression
    size: int
    segment: str | None
    relative: str  # to RIP: "rel" as in ``[rel label]``, "rip" as in ``[rip + label]``; or ""

    @property
    def is_distance(self) -> bool:
        """``[rip + 16]``: the displacement itself, as GNU as has it, and no address."""
        return self.relative == "rip" and self.displacement.is_constant

    @property
    def is_narrow(self) -> bool:
        """Its registers have 32 bits."""
        return any(r is not None and r.size == 4 for r in (self.base, self.index))


Operand = Register | Address | Expression

_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def _evaluate(tree: ast.expr, labels: Mapping[str, int], text: str) -> int:
    if isinstance(tree, ast.Constant):
        if isinstance(tree.value, int):
            return tree.value
        if isinstance(tree.value, str) and len(tree.value) == 1:
            return ord(tree.value)
    elif isinstance(tree, ast.Name):
        if tree.id not in labels:
            raise AssemblyError(f"there is no label or register {tree.id!r}")
        return labels[tree.id]
    elif isinstance(tree, ast.UnaryOp):
        value = _evaluate(tree.operand, labels, text)
        if isinstance(tree.op, ast.USub):
            return -value
        if isinstance(tree.op, ast.Invert):
            return ~value
    elif isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATIONS:
        left = _evaluate(tree.left, labels, text)
        right = _evaluate(tree.right, labels, text)
        if right == 0 and isinstance(tree.op, ast.FloorDiv | ast.Mod):
            raise AssemblyError(f"{text!r} divides by 0")
        if isinstance(tree.op, ast.LShift | ast.RShift) and not 0 <= right < 64:
            raise AssemblyError(f"{text!r} shifts by {right}: a shift is by 0 to 63")
        return int(_OPERATIONS[type(tree.op)](left, right))
    raise AssemblyError(f"{text!r} is no number, label, or sum of them")


def expression(text: str) -> Expression:
    """Parses an expression: numbers (decimal, 0x, 0b, 0o, 1ah), characters, labels, operators."""
    plain = re.sub(r"\b([0-9][0-9a-fA-F]*)[hH]\b", r"0x\1", text.strip())
    plain = re.sub(r"(?<!/)/(?!/)", "//", plain.replace("$", " here_ "))
    plain = re.sub(r"(?<![\w'])\.(\w)", r"local_\1", plain)
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise AssemblyError(f"{text.strip()!r} is no number, label, or sum of them") from None
    return Expression(tree, text.strip())


def _terms(text: str) -> list[str]:
    """Splits a sum at its outer ``+`` and ``-``; a ``-`` stays with its term."""
    terms, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter in "+-" and depth == 0 and at > start and text[start:at].strip():
            terms.append(text[start:at])
            start = at + (letter == "+")
    terms.append(text[start:])
    return [term.strip() for term in terms]


def _scaled(term: str) -> tuple[Register, int] | None:
    match = re.fullmatch(r"(\w+)(?:\s*\*\s*(\d+))?|(\d+)\s*\*\s*(\w+)", term)
    if match is None:
        return None
    register = REGISTERS.get(match[1] or match[4] or "")
    if register is None:
        return None
    scale = int(match[2] or match[3] or 1)
    if scale not in (1, 2, 4, 8):
        raise AssemblyError(f"an index is multiplied by 1, 2, 4 or 8, not by {scale}")
    return register, scale


def address(text: str, size: int, segment: str | None) -> Address:
    """Parses what stands in the brackets."""
    base: Register | None = None
    index: Register | None = None
    scale, rest, relative = 1, [], ""
    if match := re.match(r"(fs|gs)\s*:", text):
        segment, text = match[1], text[match.end() :]
    if text.startswith("rel "):
        relative, text = "rel", text[4:]
    for term in _terms(text):
        if term == "rip":
            relative = "rip"
            continue
        found = _scaled(term)
        if found is None:
            rest.append(term)
            continue
        register, by = found
        if register.size not in (4, 8) or register.kind != "general":
            raise AssemblyError(f"{register.name} can be no part of an address")
        if base is None and by == 1:
            base = register
        elif index is None:
            index, scale = register, by
        else:
            raise AssemblyError("an address has one base and one index")
    if index is not None and index.number == 4:  # RSP can be no index
        if scale != 1 or base is None:
            raise AssemblyError("RSP can be no index")
        base, index = index, base
    if index is not None and base is not None and index.size != base.size:
        raise AssemblyError("base and index of an address have one size")
    if relative and (base or index):
        raise AssemblyError("an address that is relative to RIP has no base and no index")
    return Address(base, index, scale, expression(" + ".join(rest) or "0"), size, segment, relative)


def operand(text: str) -> Operand:
    """Parses one operand of a line."""
    text = text.strip()
    if not text:
        raise AssemblyError("an operand is missing")
    if (register := REGISTERS.get(text.lower())) is not None:
        return register
    match = re.fullmatch(
        r"(?:(byte|word|dword|qword|xmmword)\s+(?:ptr\s+)?)?(?:(fs|gs)\s*:\s*)?\[(.*)\]",
        text,
        re.IGNORECASE,
    )
    if match is None:
        return expression(text)
    inner = match[3].strip()
    lowered = re.sub(r"[A-Za-z]\w*", lambda m: _lower(m[0]), inner)
    return address(
        lowered, SIZES[match[1].lower()] if match[1] else 0, match[2] and match[2].lower()
    )


def _lower(word: str) -> str:
    """Registers and keywords in small letters; labels as they are."""
    small = word.lower()
    return small if small in REGISTERS or small in ("rip", "rel", "fs", "gs") else word
