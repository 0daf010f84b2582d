# SPDX-License-Identifier: Apache-2.0
"""Calls every function that libverbena_paths.so stands in front of, and prints what came back.

Run over Verbena by test_paths.py. The output is JSON: {function: {kind of path: outcome}}; an
outcome is the name of an errno, or what the function found.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import stat
from collections.abc import Callable

DEVICE = "/sys/class/infiniband/verbena0"
PATHS = {
    "file": f"{DEVICE}/node_type",
    "directory": f"{DEVICE}/ports",
    "link": "/sys/class/infiniband_verbs/uverbs0/device",
    "device": "/dev/infiniband/uverbs0",
    "missing": f"{DEVICE}/no_such_file",
    "below a file": f"{DEVICE}/node_type/x",
    "foreign": "/proc/self/comm",
    "foreign missing": "/sys/class/infiniband/no_such_device",
}
AT_FDCWD, NOFOLLOW, EMPTY_PATH = -100, 0x100, 0x1000
MODE_OFFSET = {"x86_64": 24, "aarch64": 16}[platform.machine()]  # st_mode in struct stat
STATX_MODE_OFFSET = 28
NAME_OFFSET = 19  # d_name in struct dirent

Outcome = str | list[str]
libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object, result: type = ctypes.c_int) -> object:
    """The function's result; OSError when it is -1, or NULL where it is a pointer."""
    function = getattr(libc, name)
    function.restype = result
    ctypes.set_errno(0)
    value = function(*(a.encode() if isinstance(a, str) else a for a in arguments))
    if value == -1 or (value is None and ctypes.get_errno()):
        raise OSError(ctypes.get_errno(), name)
    return value


def outcome(attempt: Callable[[], Outcome]) -> Outcome:
    try:
        return attempt()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def contents(fd: int) -> Outcome:
    """What can be read; of a directory its kind, of a device what /dev/null gives."""
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            return "directory"
        return os.read(fd, 100).decode().strip()
    finally:
        os.close(fd)


def kind_of(mode: int) -> str:
    return f"{stat.filemode(mode)}"


# ---- the functions, each as a call on one path -----------------------------------------------


def opened(name: str, flags: int) -> Callable[[str], Outcome]:
    at = [AT_FDCWD] if "openat" in name else []
    return lambda path: contents(int(str(call(name, *at, path, flags))))


def streamed(name: str, mode: str) -> Callable[[str], Outcome]:
    def read(path: str) -> Outcome:
        stream = ctypes.c_void_p(call(name, path, mode, result=ctypes.c_void_p))  # type: ignore
        buffer = ctypes.create_string_buffer(100)
        libc.fgets(buffer, 100, stream)
        libc.fclose(stream)
        return buffer.value.decode().strip()

    return read


def described(name: str, before: list[object], after: list[object]) -> Callable[[str], Outcome]:
    def look(path: str) -> Outcome:
        buffer = ctypes.create_string_buffer(256)
        call(name, *before, path, buffer, *after)
        return kind_of(int.from_bytes(buffer.raw[MODE_OFFSET : MODE_OFFSET + 4], "little"))

    return look


def described_open(name: str, before: list[object]) -> Callable[[str], Outcome]:
    def look(path: str) -> Outcome:
        buffer = ctypes.create_string_buffer(256)
        fd = os.open(path, os.O_RDONLY)
        try:
            call(name, *before, fd, buffer)
        finally:
            os.close(fd)
        return kind_of(int.from_bytes(buffer.raw[MODE_OFFSET : MODE_OFFSET + 4], "little"))

    return look


def extended(path: str) -> Outcome:
    buffer = ctypes.create_string_buffer(256)
    call("statx", AT_FDCWD, path, 0, 0x7FF, buffer)
    return kind_of(int.from_bytes(buffer.raw[STATX_MODE_OFFSET : STATX_MODE_OFFSET + 2], "little"))


def permitted(name: str, mode: int) -> Callable[[str], Outcome]:
    if name == "faccessat":
        return lambda path: str(call(name, AT_FDCWD, path, mode, 0))
    return lambda path: str(call(name, path, mode))


def linked(name: str) -> Callable[[str], Outcome]:
    at = [AT_FDCWD] if name == "readlinkat" else []

    def read(path: str) -> Outcome:
        buffer = ctypes.create_string_buffer(200)
        call(name, *at, path, buffer, ctypes.c_size_t(200), result=ctypes.c_ssize_t)
        return buffer.value.decode()

    return read


def resolved(name: str) -> Callable[[str], Outcome]:
    after: list[object] = {
        "realpath": [None],
        "canonicalize_file_name": [],
        "__realpath_chk": [ctypes.create_string_buffer(4096), ctypes.c_size_t(4096)],
    }[name]
    return lambda path: str(call(name, path, *after, result=ctypes.c_char_p), "utf-8")  # type: ignore


def attributes(name: str) -> Callable[[str], Outcome]:
    zero = ctypes.c_size_t(0)
    rest = ["user.x", None, zero] if "get" in name else [None, zero]
    return lambda path: str(call(name, path, *rest, result=ctypes.c_ssize_t))


def entry_name(entry: int) -> str:
    return ctypes.string_at(entry + NAME_OFFSET).decode()


def listed(opendir: str, readdir: str) -> Callable[[str], Outcome]:
    """Reads a directory twice, seeks back to its second entry, and expects the same each time."""

    def read(path: str) -> Outcome:
        if opendir == "fdopendir":
            argument: object = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        else:
            argument = path
        stream = ctypes.c_void_p(call(opendir, argument, result=ctypes.c_void_p))  # type: ignore
        names = all_names(stream, readdir)
        libc.rewinddir(stream)
        again = [next_name(stream, readdir)]
        libc.telldir.restype = ctypes.c_long
        second = libc.telldir(stream)
        again += all_names(stream, readdir)
        libc.seekdir(stream, ctypes.c_long(second))
        tail = all_names(stream, readdir)
        assert (again, tail) == (names, names[1:])
        assert stat.S_ISDIR(os.fstat(libc.dirfd(stream)).st_mode)
        call("closedir", stream)
        return sorted(str(name) for name in names)

    return read


def next_name(stream: ctypes.c_void_p, readdir: str) -> str | None:
    function = getattr(libc, readdir)
    if not readdir.endswith("_r"):
        function.restype = ctypes.c_void_p
        entry = function(stream)
        return entry_name(entry) if entry else None
    buffer, result = ctypes.create_string_buffer(300), ctypes.c_void_p()
    assert function(stream, buffer, ctypes.byref(result)) == 0
    return entry_name(result.value) if result.value else None


def all_names(stream: ctypes.c_void_p, readdir: str) -> list[str | None]:
    names: list[str | None] = []
    while (name := next_name(stream, readdir)) is not None:
        names.append(name)
    return names


def scanned(name: str) -> Callable[[str], Outcome]:
    at = [AT_FDCWD] if "at" in name else []
    keep = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda entry: entry_name(entry) != ".")

    def read(path: str) -> Outcome:
        table = ctypes.POINTER(ctypes.c_void_p)()
        count = int(str(call(name, *at, path, ctypes.byref(table), keep, libc.alphasort)))
        names = [entry_name(table[i] or 0) for i in range(count)]
        assert names == sorted(names)
        return names

    return read


def globbed(name: str) -> Callable[[str], Outcome]:
    def read(path: str) -> Outcome:
        result = (ctypes.c_size_t * 16)()  # gl_pathc, gl_pathv, …
        if call(name, path[:-1] + "*", 0, None, result):
            return "no match"
        paths = ctypes.cast(result[1], ctypes.POINTER(ctypes.c_char_p))
        return [(paths[i] or b"").decode() for i in range(result[0])]

    return read


READ, WRITE, EXECUTE = 4, 2, 1
CALLS: dict[str, Callable[[str], Outcome]] = {
    **{f"{n} r": opened(n, os.O_RDONLY) for n in
       ("open", "open64", "__open_2", "__open64_2", "openat", "openat64", "__openat_2",
        "__openat64_2")},
    **{f"{n} w": opened(n, os.O_WRONLY) for n in ("open", "open64", "openat", "openat64")},
    "open creating": opened("open64", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "open directory": opened("open64", os.O_RDONLY | os.O_DIRECTORY),
    "open nofollow": opened("open64", os.O_RDONLY | os.O_NOFOLLOW),
    **{f"{n} {m}": streamed(n, m) for n in ("fopen", "fopen64") for m in ("re", "r+", "a")},
    **{n: described(n, [], []) for n in ("stat", "stat64", "lstat", "lstat64")},
    **{n: described(n, [AT_FDCWD], [0]) for n in ("fstatat", "fstatat64")},
    "fstatat nofollow": described("fstatat64", [AT_FDCWD], [NOFOLLOW]),
    **{n: described(n, [1], []) for n in ("__xstat", "__xstat64", "__lxstat", "__lxstat64")},
    **{n: described(n, [1, AT_FDCWD], [0]) for n in ("__fxstatat", "__fxstatat64")},
    **{n: described_open(n, []) for n in ("fstat", "fstat64")},
    **{n: described_open(n, [1]) for n in ("__fxstat", "__fxstat64")},
    "statx": extended,
    **{f"{n} {m}": permitted(n, m) for n in ("access", "euidaccess", "eaccess", "faccessat")
       for m in (READ, WRITE, EXECUTE)},
    **{n: linked(n) for n in ("readlink", "readlinkat")},
    **{n: resolved(n) for n in ("realpath", "canonicalize_file_name", "__realpath_chk")},
    **{n: attributes(n) for n in ("getxattr", "lgetxattr", "listxattr", "llistxattr")},
    **{f"opendir {n}": listed("opendir", n) for n in
       ("readdir", "readdir64", "readdir_r", "readdir64_r")},
    "fdopendir": listed("fdopendir", "readdir64"),
    **{n: scanned(n) for n in ("scandir", "scandir64", "scandirat", "scandirat64")},
    **{n: globbed(n) for n in ("glob", "glob64")},
}  # fmt: skip


if __name__ == "__main__":
    table = {
        name: {kind: outcome(lambda: function(path)) for kind, path in PATHS.items()}  # noqa: B023
        for name, function in CALLS.items()
    }
    print(json.dumps(table))
