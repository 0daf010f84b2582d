// SPDX-License-Identifier: Apache-2.0
/*
 * read(2), write(2) and ioctl(2) of descriptors of the devices (devices.h). Every call of every
 * program comes here, so that those before the first such device was opened cost one load.
 */
#include "preload/paths/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "preload/paths/claim.h"
#include "preload/paths/fabric/umad.h"
#include "preload/paths/manager/rdma_cm.h"
#include "preload/paths/next.h"

static atomic_bool device_was_opened;

void vb_preload_device_was_opened(void)
{
    atomic_store_explicit(&device_was_opened, true, memory_order_relaxed);
}

enum vb_node_kind vb_preload_device_kind(int fd, uint64_t *inode)
{
    struct stat stat;
    if (!atomic_load_explicit(&device_was_opened, memory_order_relaxed) ||
        vb_preload_next_fstatat(fd, "", &stat, AT_EMPTY_PATH))
        return VB_NODE_PASSAGE;
    int node = vb_preload_stamped_node(&stat);
    *inode = stat.st_ino;
    return node >= 0 ? vb_preload_tree()->nodes[node].kind : VB_NODE_PASSAGE;
}

VB_EXPORT ssize_t write(int fd, const void *buffer, size_t size)
{
    uint64_t inode;
    ssize_t written;
    if (vb_preload_umad_usual_write(fd, buffer, size, &written))
        return written;
    switch (vb_preload_device_kind(fd, &inode)) {
    case VB_NODE_RDMA_CM:
        if (vb_preload_rdma_cm_takes(size))
            return vb_preload_rdma_cm_write(fd, inode, buffer, size);
        break;
    case VB_NODE_UMAD:
        return vb_preload_umad_write(fd, inode, buffer, size);
    default:
        break;
    }
    return VB_NEXT(write)(fd, buffer, size);
}

VB_EXPORT ssize_t read(int fd, void *buffer, size_t size)
{
    uint64_t inode;
    ssize_t length;
    if (vb_preload_umad_usual_read(fd, buffer, size, &length))
        return length;
    if (vb_preload_device_kind(fd, &inode) == VB_NODE_UMAD)
        return vb_preload_umad_read(fd, buffer, size);
    return VB_NEXT(read)(fd, buffer, size);
}

VB_EXPORT int ioctl(int fd, unsigned long request, ...)
{
    uint64_t inode;
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (vb_preload_device_kind(fd, &inode) == VB_NODE_UMAD)
        return vb_preload_umad_ioctl(inode, (uint32_t)request, argument);
    return VB_NEXT(ioctl)(fd, request, argument);
}
