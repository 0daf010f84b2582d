// SPDX-License-Identifier: Apache-2.0
/* The device list, opening and closing, and what a fork does to what is open. */
#include "dropin/device.h"

#include <endian.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/settings.h"
#include "dropin/sysfs.h"
#include "memory/process_heap.h"
#include "port/gid.h"

/* The C interface hands out device pointers that must stay the same, so these are the process's. */
static struct verbs_device device;
static const char device_ops[1]; /* only its address counts */
static pthread_once_t device_once = PTHREAD_ONCE_INIT;

static pthread_mutex_t opened_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct vb_open *opened; /* all contexts, over the one adapter */
static struct vb_direct *adapter;

static void in_class(char *path, const char *class, const char *name)
{
    /* A root so long that this does not fit gives a path that does not exist. */
    if (snprintf(path, IBV_SYSFS_PATH_MAX, "%s/class/%s/%s", ibv_get_sysfs_path(), class, name) >=
        IBV_SYSFS_PATH_MAX)
        path[0] = '\0';
}

static void make_device(void)
{
    struct ibv_device *ibv = &device.device;

    ibv->node_type = IBV_NODE_CA;
    ibv->transport_type = IBV_TRANSPORT_IB;
    strcpy(ibv->name, VB_DEVICE_NAME);
    strcpy(ibv->dev_name, VB_UVERBS_NAME);
    in_class(ibv->dev_path, "infiniband_verbs", VB_UVERBS_NAME);
    in_class(ibv->ibdev_path, "infiniband", VB_DEVICE_NAME);
    device.ops = device_ops;
    device.refcount = 1;
    device.entry.next = device.entry.prev = &device.entry;
}

VB_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
    struct ibv_device **list = calloc(2, sizeof(*list));

    if (num_devices)
        *num_devices = list ? 1 : 0;
    if (!list)
        return NULL;
    pthread_once(&device_once, make_device);
    list[0] = &device.device;
    return list;
}

VB_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

VB_EXPORT const char *ibv_get_device_name(struct ibv_device *ibv)
{
    return ibv->name;
}

VB_EXPORT __be64 ibv_get_device_guid(struct ibv_device *ibv)
{
    (void)ibv;
    return htobe64(vb_device_guid());
}

VB_EXPORT int ibv_get_device_index(struct ibv_device *ibv)
{
    (void)ibv;
    return VB_DEVICE_INDEX;
}

/* ---- fork: the adapter stays the parent's ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&opened_mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&opened_mutex);
}

static void after_fork_in_child(void)
{
    for (struct vb_open *each = opened; each; each = each->next)
        vb_open_kill(each);
    opened = NULL;
    if (adapter)
        vb_direct_abandon(adapter);
    adapter = NULL;
    pthread_mutex_init(&opened_mutex, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- open and close ---- */

static const char *remedy(int error)
{
    switch (error) {
    case -EMFILE:
        return "this process has too many open files: raise `ulimit -n`";
    case -ENFILE:
        return "the system has too many open files: raise fs.file-max";
    case -ENOMEM:
        return "no address space for its tables: raise or lift `ulimit -v`";
    case -EUSERS:
        return "every place on this host is taken by another process that has it open";
    case -ENOSYS:
    case -EPERM:
        return "the system forbids a call that it needs (memfd_create, socket, epoll, getrandom): "
               "look at the container's seccomp filter; `verbena doctor` says which";
    default:
        return strerror(-error);
    }
}

/* Under opened_mutex. */
static int open_adapter(void)
{
    struct vb_direct_config config = {.heap = vb_process_heap(), .force = vb_settings()->copy};
    static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

    if (adapter)
        return 0;
    if (!config.heap)
        vb_log(VB_LOG_INFO, "no shared memory for applications (%s): copies take longer",
               strerror(errno));
    pthread_once(&forks_once, watch_forks);
    return vb_direct_open(&config, &adapter);
}

static void enter(struct vb_open *made)
{
    made->direct = adapter;
    made->next = opened;
    opened = made;
}

static int open_context(struct vb_open *made)
{
    struct ibv_context *context = &made->verbs.context;
    int error;

    pthread_mutex_lock(&opened_mutex);
    error = open_adapter();
    if (!error)
        error = vb_context_open(&adapter->adapter, context, &made->core);
    if (!error) {
        context->async_fd = made->core->async_fd;
        enter(made);
    } else if (adapter && !opened) {
        vb_direct_close(adapter);
        adapter = NULL;
    }
    pthread_mutex_unlock(&opened_mutex);
    return error;
}

static int new_context(struct ibv_device *ibv, struct vb_open **made)
{
    struct vb_open *fresh = calloc(1, sizeof(*fresh));
    int error;

    if (!fresh)
        return -ENOMEM;
    error = vb_open_init(fresh, ibv);
    if (!error) {
        error = open_context(fresh);
        if (error)
            vb_open_fini(fresh);
    }
    if (error)
        free(fresh);
    else
        *made = fresh;
    return error;
}

VB_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *ibv)
{
    struct vb_open *made;
    int error = new_context(ibv, &made);

    if (error) {
        vb_log(VB_LOG_ERRORS, "cannot open %s: %s", ibv->name, remedy(error));
        return vb_null(error);
    }
    vb_log(VB_LOG_INFO, "opened %s, a software HCA, instead of the system's RDMA devices",
           ibv->name);
    return &made->verbs.context;
}

static void leave(struct vb_open *closed)
{
    struct vb_open **link = &opened;

    while (*link && *link != closed)
        link = &(*link)->next;
    if (*link)
        *link = closed->next;
}

/* What was left open in it goes too, as when the kernel closes a device file. */
VB_EXPORT int ibv_close_device(struct ibv_context *context)
{
    struct vb_open *closed = vb_open_of(context);

    pthread_mutex_lock(&opened_mutex);
    leave(closed);
    if (closed->core)
        vb_context_close(closed->core);
    if (!opened && adapter) {
        vb_direct_close(adapter);
        adapter = NULL;
    }
    pthread_mutex_unlock(&opened_mutex);
    vb_open_fini(closed);
    free(closed);
    return 0;
}

VB_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
    (void)cmd_fd;
    return vb_null(-EOPNOTSUPP);
}

/* ---- nothing is pinned, so a fork needs no preparation ---- */

VB_EXPORT int ibv_fork_init(void)
{
    return 0;
}

VB_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return IBV_FORK_UNNEEDED;
}

VB_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
    (void)base, (void)size;
    return 0;
}

VB_EXPORT int ibv_dofork_range(void *base, size_t size)
{
    (void)base, (void)size;
    return 0;
}
