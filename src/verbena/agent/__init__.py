# SPDX-License-Identifier: Apache-2.0
"""The agent: a process that manages connections for the programs of one user and network namespace.

The first program that opens /dev/infiniband/rdma_cm starts it (preload/paths/manager), and it ends
when nobody has used it for a while. ``verbena agent`` runs it in the foreground.
"""
