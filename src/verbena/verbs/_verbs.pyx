# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=False, freethreading_compatible=False
"""The compiled binding: one class per verbs object, over any library with libibverbs' ABI.

One extension in several files, in the order in which the classes need each other.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS,
    PyBUF_C_CONTIGUOUS,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.memoryview cimport PyMemoryView_Check
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.exc cimport PyErr_CheckSignals, PyErr_WarnEx
from cpython.pythread cimport PyThread_get_thread_ident
from libc.errno cimport (
    EAGAIN,
    EBUSY,
    EINTR,
    EINVAL,
    EIO,
    EMFILE,
    EMSGSIZE,
    ENFILE,
    ENOENT,
    ENOSYS,
    EOPNOTSUPP,
    ERANGE,
    ETIMEDOUT,
    errno,
)
from libc.stdint cimport (
    SIZE_MAX,
    UINT64_MAX,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
    uintptr_t,
)
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap
from posix.unistd cimport STDERR_FILENO, close as close_fd, read as read_fd, usleep

import collections
import fcntl as _fcntl
import os
import weakref
from operator import index

from verbena._fault_rules import records as _fault_records
from verbena.verbs import attributes as _attributes
from verbena.verbs import enums as _enums
from verbena.verbs.errors import RangeError, VerbsError, closed as _closed_error, completion_failed
from verbena.verbs.errors import failed, no_option, unready, without_packets
from verbena.verbs.here import place as _place

cdef extern from "arpa/inet.h" nogil:
    uint32_t htonl(uint32_t)
    uint32_t ntohl(uint32_t)
    uint16_t ntohs(uint16_t)

cdef extern from "errno.h" nogil:
    int ECANCELED

cdef extern from "endian.h" nogil:
    uint64_t be64toh(uint64_t)

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *, unsigned long, int)
    short POLLIN

include "_abi.pxi"
include "_library.pxi"
include "_numbers.pxi"
include "_resource.pxi"
include "_outstanding.pxi"
include "_device.pxi"
include "_context.pxi"
include "_memory.pxi"
include "_windows.pxi"
include "_work.pxi"
include "_completion.pxi"
include "_simulated.pxi"
include "_address.pxi"
include "_srq.pxi"
include "_qp.pxi"
include "_xrc.pxi"
