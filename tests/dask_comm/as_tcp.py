# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that runs distributed's own test_comms.py, unmodified, over verbena.dask_comm.

Those tests name the scheme tcp:// and the classes of distributed.comm.tcp; the plugin puts ours in
their place, and leaves out the tests that say nothing of a comm of another kind.
"""

from __future__ import annotations

import distributed.comm.tcp
import pytest

import verbena.dask_comm as ours

LEFT_OUT = {
    "[asyncio": "asyncio_tcp, distributed's second implementation of tcp://, which stays as it is",
    "_inproc_": "comms inside a process, which stay as they are",
    "_tls_": "TLS has a scheme of its own, and verbena:// refuses encryption",
    "_ucx_": "ucx:// has a scheme of its own, and needs UCX",
    "handler_on_handshake_error": "opens a TCP socket to the listener, which has none",
    "comm_closed_on_write_error": "replaces the write of TCP's stream",
    "stop_listener_during_handle_stream": "replaces _handle_stream of TCP's listener",
    "share_buffer_with_header[tornado-200000": "expects large arrays in host_array's memory",
    "share_buffer_with_header[tornado-350000": "expects the parts of a shard that TCP makes",
}
"""What the name of a test that is left out has in it, and why."""

ours.PREFIX = ours.VerbenaListener.prefix = "tcp://"
distributed.comm.tcp.TCP = ours.VerbenaComm
distributed.comm.tcp.TCPConnector = ours.VerbenaConnector
distributed.comm.tcp.TCPListener = ours.VerbenaListener
distributed.comm.tcp.TCPBackend = ours.VerbenaBackend


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that no entry of LEFT_OUT names."""
    left_out = [item for item in items if any(part in item.name for part in LEFT_OUT)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
