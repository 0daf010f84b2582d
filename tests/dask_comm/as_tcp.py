# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that runs distributed's own test_comms.py, unmodified, over verbena.dask_comm.

Those tests name the scheme tcp:// and the classes of distributed.comm.tcp; the plugin puts ours in
their place. Their certificates are beside the tests of a checkout, and not in the wheel.
"""

from __future__ import annotations

import os
from pathlib import Path

import distributed.comm.tcp
import distributed.utils_test

import verbena.dask_comm as ours

CHECKOUT = Path(os.environ["DISTRIBUTED_CHECKOUT"])
ours.PREFIX = ours.VerbenaListener.prefix = "tcp://"
distributed.comm.tcp.TCP = ours.VerbenaComm
distributed.comm.tcp.TCPConnector = ours.VerbenaConnector
distributed.comm.tcp.TCPListener = ours.VerbenaListener
distributed.comm.tcp.TCPBackend = ours.VerbenaBackend
distributed.utils_test.get_cert = lambda name: str(CHECKOUT / "distributed" / "tests" / name)
