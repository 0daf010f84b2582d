# SPDX-License-Identifier: Apache-2.0
"""Microseconds of a call: verbena.rpc, gRPC, and a bare exchange over uvloop's TCP.

goals.py has the rows. A round is one of `verbena bench rpc`, in processes of its own, so that
the runner alternates ours and the peer's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from verbena.measure import rpc_bench
from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, SkipError

LEAST_SECONDS = 0.2


@dataclass(frozen=True)
class RpcCall:
    """A call with an argument of ``size`` bytes; ``who`` is a contender of `verbena bench rpc`."""

    who: str
    size: int
    unit: Unit = field(default=Unit.MICROSECONDS, init=False)

    @property
    def label(self) -> str:
        return {
            "default": "verbena.rpc",
            "woken, uvloop": "verbena.rpc",
            "uvloop": "TCP over uvloop",
        }.get(self.who, self.who)

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        (chosen,) = (each for each in rpc_bench.contenders() if each.name == self.who)
        seconds = max(effort.seconds, LEAST_SECONDS)
        try:
            found = rpc_bench.measure_live([self.size], 1, [chosen], lambda text: None, seconds)
        except OSError as error:
            raise MeasureError(str(error)) from error
        if self.who in found.skipped:
            raise SkipError(found.skipped[self.who])
        value = found.best(self.who, self.size)
        assert value is not None, self.who
        return Sample(value)
