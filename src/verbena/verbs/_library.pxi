# SPDX-License-Identifier: Apache-2.0
# A loaded libibverbs. Several can be open in one process; every object belongs to one of them.

cdef extern from "dlfcn.h" nogil:
    void *dlopen(const char *path, int flags)
    int dlclose(void *handle)
    char *dlerror()
    int RTLD_NOW
    int RTLD_LOCAL

cdef dict _libraries = {}  # dlopen handle -> Library; a handle is never closed, so it is unique


def library_in_front():
    """The path of the Verbena that ``verbena run`` put in front of every libibverbs, or None."""
    cdef const char *path = vb_in_front()
    return None if path is NULL else os.fsdecode(path)


cdef class Library:
    """A loaded libibverbs: ``Library.open(path)``."""

    cdef vb_symbols call
    cdef readonly str path

    def __init__(self):
        raise TypeError("use verbena.verbs.library.load()")

    @staticmethod
    def open(path):
        """Load the library at ``path``.

        Raises VerbsError(ENOENT) when it is none or lacks a symbol.
        """
        cdef void *handle = dlopen(os.fsencode(path), RTLD_NOW | RTLD_LOCAL)
        if handle is NULL:
            raise VerbsError(
                ENOENT,
                f"cannot load {path}: {os.fsdecode(dlerror())}; VERBENA_LIBRARY, or `library`, is"
                " 'packaged', 'system' or the path of a libibverbs",
            )
        known = _libraries.get(<uintptr_t>handle)
        return known if known is not None else _new_library(path, handle)

    @property
    def is_verbena(self):
        """True when it is Verbena's libibverbs and not the system's."""
        return self.call.explain is not NULL

    def __repr__(self):
        return f"<Library {self.path!r}>"


cdef Library _new_library(path, void *handle):
    cdef Library library = Library.__new__(Library)
    cdef const char *missing = vb_resolve(handle, &library.call)
    if missing is not NULL:
        dlclose(handle)
        raise VerbsError(
            ENOENT, f"{path} is no libibverbs that can be used here: it lacks {missing.decode()}"
        )
    library.path = os.fspath(path)
    _libraries[<uintptr_t>handle] = library
    return library
