# SPDX-License-Identifier: Apache-2.0
"""What a controller answers: ``Reply``, or the ``Failure`` that ends a command."""

from __future__ import annotations

import errno
from collections.abc import Awaitable
from typing import NamedTuple

from .status import Status

__all__ = ["Failure", "Reply", "status_of_error"]


class Reply(NamedTuple):
    """A command has succeeded: the result of its completion, and data for the host.

    With ``waiting`` it succeeds once that is done, and fails if that raises OSError or Failure.
    """

    result: int = 0
    data: bytes = b""
    waiting: Awaitable[None] | None = None


class Failure(Exception):
    """A command fails; ``is_final`` (DNR) says that it would do so again."""

    def __init__(self, status: Status, is_final: bool = True, result: int = 0) -> None:
        super().__init__(status.name)
        self.status = status
        self.is_final = is_final
        self.result = result

    @classmethod
    def of_parameter(cls, offset: int, in_data: bool) -> Failure:
        """A parameter of Connect is wrong; its offset is in the data, or in the command."""
        return cls(Status.CONNECT_PARAMETERS, result=offset | in_data << 16)


_ERRORS = {
    errno.ENOSPC: Status.CAPACITY,
    errno.EDQUOT: Status.CAPACITY,
    errno.EROFS: Status.NAMESPACE_WRITE_PROTECTED,
}


def status_of_error(error: OSError, is_write: bool) -> Status:
    """Return the status of a command whose store has failed."""
    other = Status.WRITE_FAULT if is_write else Status.UNRECOVERED_READ
    return _ERRORS.get(error.errno or 0, other)
