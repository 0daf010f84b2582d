# SPDX-License-Identifier: Apache-2.0
"""What the inside of a computer raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.host.core import Core


class HostError(Exception):
    """A mistake in the description of a computer, or an access that nothing answers.

    Where an instruction has led to it, ``core`` is the instruction's, and ``address`` where it is.
    A load, or a store to a device without a bus, is tried again by a further run, unless
    ``core.shut_down()`` lets everything else go on without that core. A posted store is not.
    """

    core: Core | None = None
    address: int | None = None
    has_place = False
    """Its text names the instruction that has led to it, or none has."""

    def place(self, core: Core, address: int) -> None:
        """Says which instruction has led to it."""
        self.core = core
        if self.address is None:
            self.address = address


class HostTypeError(HostError, TypeError):
    """An argument of a type that the parameter does not take, one too many, or one missing."""


class AssemblyError(HostError):
    """A line that the assembler cannot translate; ``line`` is its number, from 1."""

    def __init__(self, message: str, line: int | None = None, text: str = "") -> None:
        where = "" if line is None else f"line {line}: {text.strip()!r}: "
        super().__init__(where + message)
        self.line = line


class AccessError(HostError):
    """An access of a debugger or of DMA to an address without memory."""


class DeviceError(HostError):
    """What ``read`` or ``write`` of a device has raised, which is its ``__cause__``."""


class ProcessorError(HostError):
    """A fault of a program that no handler takes; ``address`` is the instruction's.

    A further run tries the instruction again. ``core.shut_down()`` lets the others go on without
    ``core``, which had the fault.
    """

    def __init__(
        self, message: str, address: int, vector: int | None = None, core: Core | None = None
    ) -> None:
        super().__init__(message)
        self.address: int = address
        self.vector = vector
        self.core = core


class UnansweredError(HostError):
    """An access that no device answered, on a bus with ``unanswered="stop"``; ``address`` is the
    physical one. The core that made it is shut down, and everything else can go on: run again."""

    def __init__(self, message: str, address: int) -> None:
        super().__init__(message)
        self.address: int = address
