// SPDX-License-Identifier: Apache-2.0
/*
 * The calls about XRC domains, and ibv_open_qp. All processes that open a domain with the same
 * file share it; files are the same if their inode is, as for the kernel. Each opening holds a
 * shared lock on a byte far beyond the file's end, so the inode says whether any process has the
 * domain open, and the lock ends with the process.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/descriptor.h"

#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/settings.h"

static const off_t LOCKED_BYTE = 1ll << 62;

/* Opens the file again, since locks belong to open file descriptions. Returns -errno on failure. */
static int open_again(int fd)
{
    char path[32];
    int again;

    if (fcntl(fd, F_GETFD) < 0)
        return -errno;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = vb_memory_descriptor_raise(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    return again < 0 ? -errno : again;
}

/* Returns 1 if another opening of the domain exists, 0 if none does, or -errno. */
static int is_open_elsewhere(int fd)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCKED_BYTE, .l_len = 1};

    if (fcntl(fd, F_OFD_GETLK, &lock))
        return -errno;
    return lock.l_type != F_UNLCK;
}

static int hold_open(int fd)
{
    struct flock lock = {
        .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = LOCKED_BYTE, .l_len = 1};

    return fcntl(fd, F_OFD_SETLK, &lock) ? -errno : 0;
}

/* EAGAIN and EINVAL are what the kernel returns. If two processes ask with O_EXCL at once, both may
 * be refused. */
static int xrc_join(int fd, int oflags)
{
    int open_before = is_open_elsewhere(fd), open_now, error;

    if (open_before < 0)
        return open_before;
    if (!open_before && !(oflags & O_CREAT))
        return -EAGAIN;
    error = hold_open(fd);
    if (error)
        return error;
    open_now = is_open_elsewhere(fd);
    return (oflags & O_EXCL) && open_now ? -EINVAL : 0;
}

/* Makes a number of the inode, which two inodes of this host share with a chance of 1 in 2^64. */
static int identify(int fd, uint64_t *domain)
{
    struct vb_random mixed = {0};
    struct stat status;

    if (fstat(fd, &status))
        return -errno;
    mixed.key[0] = status.st_dev;
    mixed.key[1] = status.st_ino;
    *domain = vb_random_next(&mixed) | 1;
    return 0;
}

/* A domain without a file is this process's alone. */
static int open_private(struct vb_context *core, struct vb_xrcd **xrcd)
{
    struct vb_adapter *adapter = core->adapter;
    uint64_t domain;

    vb_lock_take(&adapter->mutex);
    domain = vb_random_next(&adapter->random) & ~1ull;
    vb_lock_release(&adapter->mutex);
    return vb_xrcd_open(core, domain ? domain : 2, -1, xrcd);
}

static int open_shared(struct vb_context *core, int fd, int oflags, struct vb_xrcd **xrcd)
{
    int again = open_again(fd), error;
    uint64_t domain = 0;

    if (again < 0)
        return again;
    error = xrc_join(again, oflags);
    if (!error)
        error = identify(again, &domain);
    if (!error)
        error = vb_xrcd_open(core, domain, again, xrcd);
    if (error)
        close(again);
    return error;
}

static void xrc_keep(struct vb_open *opened, struct vb_xrcd *xrcd)
{
    vb_lock_abi_take(&opened->verbs.context.mutex, VB_RANK_VERBS_CONTEXT);
    xrcd->next = opened->xrcds;
    opened->xrcds = xrcd;
    vb_lock_abi_release(&opened->verbs.context.mutex);
}

static void xrc_drop(struct vb_open *opened, const struct vb_xrcd *xrcd)
{
    struct vb_xrcd **link = &opened->xrcds;

    vb_lock_abi_take(&opened->verbs.context.mutex, VB_RANK_VERBS_CONTEXT);
    while (*link != xrcd)
        link = &(*link)->next;
    *link = xrcd->next;
    vb_lock_abi_release(&opened->verbs.context.mutex);
}

void vb_dropin_close_xrcd_files(struct vb_open *opened)
{
    for (struct vb_xrcd *xrcd = opened->xrcds; xrcd; xrcd = xrcd->next)
        if (xrcd->fd >= 0)
            close(xrcd->fd);
    opened->xrcds = NULL;
}

struct ibv_xrcd *vb_dropin_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
    const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    struct vb_context *core = vb_dropin_core(context);
    struct vb_xrcd *xrcd;
    int error;

    if (!core)
        return vb_dropin_failed_null(context, "ibv_open_xrcd", -VB_ERROR_FORKED);
    if (attr->comp_mask & ~needed)
        return vb_dropin_failed_null(context, "ibv_open_xrcd", -EOPNOTSUPP);
    if (attr->comp_mask != needed)
        return vb_dropin_failed_null(
            context, "ibv_open_xrcd",
            vb_decline(core, -EINVAL,
                       "comp_mask needs both the file descriptor, which may be -1, "
                       "and oflags"));
    error = attr->fd == -1 ? open_private(core, &xrcd)
                           : open_shared(core, attr->fd, attr->oflags, &xrcd);
    if (error)
        return vb_dropin_failed_null(context, "ibv_open_xrcd", error);
    xrc_keep(vb_dropin_open_of(context), xrcd);
    return &xrcd->ibv;
}

int vb_dropin_close_xrcd(struct ibv_xrcd *xrcd)
{
    struct vb_xrcd *own = (struct vb_xrcd *)xrcd;
    struct ibv_context *context = xrcd->context; /* read when the object is gone */
    struct vb_open *opened = vb_dropin_open_of(context);
    int error;

    if (!vb_dropin_core(context))
        return vb_dropin_destroy_closed(context, own); /* a fork has closed its file */
    xrc_drop(opened, own);
    error = vb_xrcd_close(own);
    if (error)
        xrc_keep(opened, own);
    return vb_dropin_result(context, "ibv_close_xrcd", error);
}

/* ---- ibv_open_qp: a target QP of the domain that exists already ---- */

struct ibv_qp *vb_dropin_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
    const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    struct vb_context *core = vb_dropin_core(context);
    struct vb_qp *qp;
    int error;

    if (!core)
        return vb_dropin_failed_null(context, "ibv_open_qp", -VB_ERROR_FORKED);
    if (attr->comp_mask & ~(needed | IBV_QP_OPEN_ATTR_CONTEXT))
        return vb_dropin_failed_null(context, "ibv_open_qp", -EOPNOTSUPP);
    if ((attr->comp_mask & needed) != needed || attr->qp_type != IBV_QPT_XRC_RECV || !attr->xrcd)
        return vb_dropin_failed_null(
            context, "ibv_open_qp",
            vb_decline(core, -EINVAL, "it opens XRC targets, by number, domain and type"));
    error = vb_xrc_open_qp(core, attr, &qp);
    return error ? vb_dropin_failed_null(context, "ibv_open_qp", error) : &qp->verbs->ibv;
}
