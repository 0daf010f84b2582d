# SPDX-License-Identifier: Apache-2.0
"""Files on disks over RDMA, and the file system ``nvmeof://`` of fsspec for them.

    disk_files.format_disk("server")                       # once: an empty file system

    fsspec.open("nvmeof://server/results/one.txt", "wb")

The disk is a namespace of a target, Verbena's (`verbena disk serve`) or Linux'. Several hosts may
use it at once: names and contents are read from the disk by each, and reservations order their
changes. Writing replaces the whole file when it is closed, and lasts when it returns.
"""

from __future__ import annotations

from .filesystem import DiskFileSystem, format_disk

__all__ = ["DiskFileSystem", "format_disk"]
