# SPDX-License-Identifier: Apache-2.0
"""An operating system in small, in the machine code of a simulated computer.

The kernel (folder ``asm``) has processes with address spaces of their own, a scheduler, drivers and
sockets; the modules beside it load it and show what it does.
"""

from verbena.host.kernel.bypass import HcaDoors, UserHca, hca_equates
from verbena.host.kernel.kernel import CycleTotals, Kernel, user_program
from verbena.host.kernel.layout import USER_BASE
from verbena.host.kernel.numbers import CALLS, ERRORS, Call, error_name
from verbena.host.kernel.process import Process, ProcessCycles, ProcessState
from verbena.host.kernel.system import System, run_systems

__all__ = [
    "CALLS",
    "ERRORS",
    "HcaDoors",
    "USER_BASE",
    "UserHca",
    "Call",
    "CycleTotals",
    "Kernel",
    "Process",
    "ProcessCycles",
    "ProcessState",
    "System",
    "error_name",
    "hca_equates",
    "run_systems",
    "user_program",
]
