# SPDX-License-Identifier: Apache-2.0
# Finding and opening devices.

@cython.no_gc_clear
cdef class DeviceList:
    """libibverbs' device list, which lives as long as one of its devices."""

    cdef Library library
    cdef ibv_device **entries
    cdef ibv_device *attached  # in place of entries: the device of a simulated host
    cdef object owner         # the simulated host's object

    def __dealloc__(self):
        if self.entries is not NULL:
            self.library.call.free_device_list(self.entries)
        if self.attached is not NULL:
            self.library.call.detach(self.attached)


@cython.no_gc_clear
cdef class Device:
    """A device that libibverbs found. ``open()`` gives a Context."""

    cdef DeviceList list
    cdef ibv_device *device

    def __init__(self):
        raise TypeError("use get_device_list()")

    @property
    def library(self):
        """The libibverbs that found it."""
        return self.list.library

    @property
    def name(self):
        """The device's name, for example ``verbena0`` or ``mlx5_0``."""
        return (<bytes>self.device.name).decode()

    @property
    def dev_name(self):
        """The name of its device file, for example ``uverbs0``."""
        return (<bytes>self.device.dev_name).decode()

    @property
    def guid(self):
        """The node GUID, in host byte order."""
        return be64toh(self.list.library.call.get_device_guid(self.device))

    @property
    def node_type(self):
        """The kind of node, as NodeType."""
        return _enums.NodeType(self.device.node_type)

    @property
    def transport_type(self):
        """The transport, as TransportType."""
        return _enums.TransportType(self.device.transport_type)

    def open(self):
        """Open the device. Raises VerbsError."""
        return _open_context(self)

    def __repr__(self):
        return f"<Device {self.name!r} guid={self.guid:#018x}>"


def devices_of(Library library):
    """Return the devices that ``library`` finds, as a list of Device."""
    cdef DeviceList entries = DeviceList.__new__(DeviceList)
    cdef int count = 0
    entries.library = library
    with nogil:
        entries.entries = library.call.get_device_list(&count)
    if entries.entries is NULL:
        if errno == ENOSYS:  # the system's libibverbs where the kernel has no RDMA at all
            return []
        raise failed("get_device_list", errno)
    return [_new_device(entries, entries.entries[i]) for i in range(count)]


cdef Device _new_device(DeviceList entries, ibv_device *device):
    cdef Device self = Device.__new__(Device)
    self.list = entries
    self.device = device
    return self
