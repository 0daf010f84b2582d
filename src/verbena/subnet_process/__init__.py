# SPDX-License-Identifier: Apache-2.0
"""`verbena fabric`: one process that plays an InfiniBand subnet for programs of this host.

``FabricServer`` owns the sockets and the time, ``LiveSubnet`` the nodes and their packets. Programs
are attached to hosts of the subnet by `verbena run --fabric NAME --host HOST`. What a connection is
for is its role; a module for each role is given to the server by ``running.py``.
"""
