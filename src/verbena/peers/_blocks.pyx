# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature=False, freethreading_compatible=False
"""The ``with`` blocks of verbena.peers.sync, whose ends no exception of a signal handler can skip.

Python runs handlers as a method of Python begins, before its first statement. A method of this
class is entered without, and notes that the block is left before it calls any other.
"""


cdef class Block:
    """A ``with`` block that ``begin()`` begins and ``end(opened)`` ends.

    ``opened()`` makes what stands for it in ``blocks``, a dict, from its beginning to its end:
    ``is_left`` is set there as it is left, whatever happens then. ``drop(opened)`` ends it where
    the program has dropped it.
    """

    cdef object _opened, _begin, _end, _drop, _made
    cdef dict _blocks

    def __init__(self, begin, opened, end, drop, dict blocks not None):
        self._begin = begin
        self._made = opened
        self._end = end
        self._drop = drop
        self._blocks = blocks

    def __enter__(self):
        opened = self._made()
        value = self._begin()
        self._blocks[opened] = None
        self._opened = opened
        return value

    def __exit__(self, *error):
        opened, self._opened = self._opened, None
        opened.is_left = True
        self._end(opened)

    def __del__(self):
        opened = self._opened
        if opened is not None:
            opened.is_left = True
            self._drop(opened)
