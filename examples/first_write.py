# SPDX-License-Identifier: Apache-2.0
"""RDMA WRITE: the client writes a NumPy array into the server's memory, in one copy.

The server does nothing for it. The client tells it over the socket that the array is there.
"""

import socket
import struct
import sys

import numpy as np

from verbena import verbs

PORT = 18515
KEY = struct.Struct("!QI")  # address and rkey of the server's memory


def serve(pd: verbs.PD, qp: verbs.QP) -> None:
    memory = pd.alloc(8000, verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_WRITE)
    with socket.create_server(("", PORT)) as listener:
        client, _ = listener.accept()
    with client:
        verbs.connect_rc(qp, client)
        client.sendall(KEY.pack(memory.addr, memory.rkey))
        client.recv(1)  # "it is written"
    print("the sum of what the client wrote is", memory.array("f8").sum())


def write(pd: verbs.PD, qp: verbs.QP, host: str) -> None:
    array = np.arange(1000, dtype="f8")
    source = pd.reg_mr(array)  # no copy: the adapter reads the array where it is
    with socket.create_connection((host, PORT)) as server:
        verbs.connect_rc(qp, server)
        addr, rkey = KEY.unpack(server.recv(KEY.size, socket.MSG_WAITALL))
        qp.write(source, addr, rkey)
        qp.send_cq.wait()[0].raise_for_status()  # an error says what was wrong
        server.sendall(b"!")


with verbs.open_device() as ctx:
    pd = ctx.alloc_pd()
    qp = pd.create_qp(send_cq=ctx.create_cq(16))
    if len(sys.argv) > 1:
        write(pd, qp, sys.argv[1])
    else:
        serve(pd, qp)
