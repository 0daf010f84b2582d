# SPDX-License-Identifier: Apache-2.0
"""The exceptions of verbena.nvmeof; each is an OSError, and says what happened and what to do.

``CommandFailed`` is a command that the controller answered with a status other than success.
"""

from __future__ import annotations

import errno

from .status import Status, errno_of, sentence_of

__all__ = ["CommandFailed", "ConnectionLost", "FormatError", "NvmeError", "Refused"]


class NvmeError(OSError):
    """What goes wrong between a host and a controller."""


class FormatError(NvmeError, ValueError):
    """Bytes that are not what their format says, or a value that a field cannot hold."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EPROTO, what)


class Refused(NvmeError, ConnectionRefusedError):
    """The target refuses the host, or is none that a host can use."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.ECONNREFUSED, what)


class ConnectionLost(NvmeError, ConnectionResetError):
    """The connection to the controller has ended, and was not made again in time."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.ECONNRESET, what)


class CommandFailed(NvmeError):
    """A command ended with an error; ``status`` is a ``Status`` or a number without a name.

    ``sentence`` says what is known besides, in place of the status's own.
    """

    def __init__(
        self, what: str, status: int, is_final: bool = True, sentence: str | None = None
    ) -> None:
        known = status in Status.__members__.values()
        self.status: int = Status(status) if known else status
        self.is_final = is_final  # DNR: the same command would fail again
        super().__init__(errno_of(status), f"{what}: {sentence_of(status, sentence)}")
