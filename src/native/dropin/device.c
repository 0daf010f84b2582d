// SPDX-License-Identifier: Apache-2.0
/*
 * The devices of this process: ibv_get_device_list, opening and closing them, and what a fork does
 * to those that are open. Programs call the exported functions from any thread. The first context
 * of a device opens its adapter, and the last one that is closed closes it.
 */
#include "dropin/device.h"

#include <dlfcn.h>
#include <endian.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/calls.h"
#include "dropin/adapter.h"
#include "dropin/advice.h"
#include "dropin/command.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/remedy.h"
#include "dropin/settings.h"
#include "dropin/simulated.h"
#include "dropin/sysfs.h"
#include "dropin/verbs_device.h"
#include "memory/process_heap.h"
#include "port/gid.h"
#include "port/run_note.h"
#include "sim/hca.h"

struct vb_device {
    struct verbs_device listed; /* first: an ibv_device leads to it */
    struct vb_host *host; /* under the contexts' mutex; NULL: no context of the device is open */
};

/* The C interface hands out device pointers that must stay the same, so these are the process's. */
static struct vb_device devices[VB_MAX_DEVICES];
static const char device_ops[1]; /* only its address counts */
static pthread_once_t devices_once = PTHREAD_ONCE_INIT;

static void in_class(char *path, const char *class, const char *name)
{
    /* A root so long that this does not fit gives a path that does not exist. */
    if (snprintf(path, IBV_SYSFS_PATH_MAX, "%s/class/%s/%s", ibv_get_sysfs_path(), class, name) >=
        IBV_SYSFS_PATH_MAX)
        path[0] = '\0';
}

/* A script that the program starts by, or the program itself, may set LD_PRELOAD anew. */
static void tell_of_lost_preload(void)
{
    if (getenv("VERBENA_AGENT") && !dlopen("libverbena_paths.so", RTLD_LAZY | RTLD_NOLOAD))
        vb_dropin_log(VB_LOG_ERRORS,
                      "LD_PRELOAD was replaced behind `verbena run`, so that /dev/infiniband and "
                      "/sys are the system's: put the other library in front, as in "
                      "LD_PRELOAD=\"OTHER.so $LD_PRELOAD\"");
}

static void make_devices(void)
{
    for (unsigned number = 0; number < VB_MAX_DEVICES; ++number) {
        struct ibv_device *ibv = &devices[number].listed.device;

        vb_dropin_device_init(&devices[number].listed, device_ops);
        snprintf(ibv->name, sizeof(ibv->name), VB_DEVICE_NAME "%u", number);
        snprintf(ibv->dev_name, sizeof(ibv->dev_name), VB_UVERBS_NAME "%u", number);
        in_class(ibv->dev_path, "infiniband_verbs", ibv->dev_name);
        in_class(ibv->ibdev_path, "infiniband", ibv->name);
    }
    tell_of_lost_preload();
}

VB_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
    int count = vb_dropin_settings()->devices.count;
    struct ibv_device **list = calloc((size_t)count + 1, sizeof(*list));

    if (num_devices)
        *num_devices = list ? count : 0;
    if (!list)
        return NULL;
    pthread_once(&devices_once, make_devices);
    vb_port_run_note_set(VB_NOTE_DEVICE);
    for (int number = 0; number < count; ++number)
        list[number] = &devices[number].listed.device;
    return list;
}

static struct vb_device *device_of(struct ibv_device *ibv)
{
    return (struct vb_device *)ibv;
}

static unsigned number_of(const struct vb_device *device)
{
    return (unsigned)(device - devices);
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
    struct vb_simulated *simulated = vb_dropin_simulated_of(ibv);

    return htobe64(simulated ? vb_dropin_simulated_guid(simulated)
                             : vb_port_device_guid(number_of(device_of(ibv))));
}

VB_EXPORT int ibv_get_device_index(struct ibv_device *ibv)
{
    (void)ibv;
    return -1; /* the index numbers the kernel's devices (NETLINK_RDMA), which this is not */
}

/* ---- fork: the child has no open device, and the adapters go on in the parent ---- */

static void device_before_fork(void)
{
    vb_lock_take(&vb_dropin_contexts()->mutex);
}

static void device_after_fork_in_parent(void)
{
    vb_lock_release(&vb_dropin_contexts()->mutex);
}

static void device_after_fork_in_child(void)
{
    vb_thread_forget_number();
    vb_memory_watch_forget();
    for (struct vb_open *each = vb_dropin_contexts()->first; each; each = each->next) {
        vb_dropin_open_disable(each);
        vb_dropin_lines_init(&each->lines); /* another thread may have held its mutex */
    }
    vb_dropin_contexts()->first = NULL;
    for (int i = 0; i < VB_MAX_DEVICES; ++i) {
        if (devices[i].host)
            vb_host_abandon(devices[i].host);
        devices[i].host = NULL;
    }
    vb_lock_init(&vb_dropin_contexts()->mutex, VB_RANK_DEVICES);
}

/* Before a fork handlers run in the reverse order of their registration. The heap registers its own
 * when it is made, which has to be before: DEVICES is taken before HEAP. */
static void watch_forks(void)
{
    vb_memory_process_heap();
    pthread_atfork(device_before_fork, device_after_fork_in_parent, device_after_fork_in_child);
}

/* ---- open and close ---- */

/* The RoCE thread of a device calls this: a port's state or its GIDs have changed. */
static void raise_port_event(void *argument, uint8_t port_num, enum ibv_event_type type)
{
    const struct vb_device *device = argument;

    vb_lock_take(&vb_dropin_contexts()->mutex);
    for (struct vb_open *each = vb_dropin_contexts()->first; each; each = each->next)
        if (each->core && each->host && each->host == device->host)
            vb_event_raise_port(each->core, type, port_num);
    vb_lock_release(&vb_dropin_contexts()->mutex);
}

__attribute__((destructor)) static void end_at_exit(void)
{
    if (!vb_lock_try(&vb_dropin_contexts()->mutex))
        return; /* another thread opens or closes a device */
    for (int i = 0; i < VB_MAX_DEVICES; ++i) {
        struct vb_host *host = devices[i].host;

        if (host && host->roce)
            vb_roce_end(host->roce);
        vb_dropin_adapter_log_counters(host);
    }
    vb_lock_release(&vb_dropin_contexts()->mutex);
}

/* Under the contexts' mutex. */
static int device_open_adapter(struct vb_device *device)
{
    static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

    if (device->host)
        return 0;
    pthread_once(&forks_once, watch_forks);
    return vb_dropin_adapter_open(&vb_dropin_settings()->devices.device[number_of(device)],
                                  raise_port_event, device, &device->host);
}

/* Under the contexts' mutex. Opens the adapter of the context's device, if it is not open. */
static int find_adapter(struct vb_open *made, struct vb_adapter **adapter)
{
    struct ibv_device *ibv = made->verbs.context.device;
    struct vb_simulated *simulated = vb_dropin_simulated_of(ibv);
    int error = simulated ? vb_dropin_simulated_open(simulated, &made->simulated)
                          : device_open_adapter(device_of(ibv));

    if (error)
        return error;
    made->host = simulated ? NULL : device_of(ibv)->host;
    *adapter = simulated ? &made->simulated->adapter : &made->host->adapter;
    return 0;
}

static void device_enter(struct vb_open *made)
{
    made->next = vb_dropin_contexts()->first;
    vb_dropin_contexts()->first = made;
}

/* Under the contexts' mutex. Returns the adapter of the device if no context of it is open, and
 * NULL otherwise and for a simulated device. The caller closes the adapter after it has released
 * the mutex, since one of the adapter's threads may wait for that. */
static struct vb_host *device_take_unused(struct ibv_device *ibv)
{
    struct vb_device *device = device_of(ibv);
    struct vb_host *unused;

    if (vb_dropin_simulated_of(ibv))
        return NULL;
    unused = device->host;
    for (const struct vb_open *each = vb_dropin_contexts()->first; each; each = each->next)
        if (each->host == unused)
            return NULL;
    device->host = NULL;
    return unused;
}

static int open_context(struct vb_open *made)
{
    struct ibv_context *context = &made->verbs.context;
    struct vb_adapter *adapter;
    struct vb_host *unused;
    int error;

    vb_lock_take(&vb_dropin_contexts()->mutex);
    error = find_adapter(made, &adapter);
    if (!error) {
        error = vb_context_open(adapter, context, &made->core);
        if (error && made->simulated)
            vb_dropin_simulated_close(vb_dropin_simulated_of(context->device));
    }
    if (!error) {
        context->async_fd = made->core->async_fd;
        made->core->on_error = vb_dropin_advice_needed;
        device_enter(made);
    }
    unused = device_take_unused(context->device);
    vb_lock_release(&vb_dropin_contexts()->mutex);
    if (unused)
        vb_host_close(unused);
    return error;
}

/* The descriptor becomes the context's if there is no error. */
static int new_context(struct ibv_device *ibv, int cmd_fd, struct vb_open **made)
{
    struct vb_open *fresh = calloc(1, sizeof(*fresh));
    int error;

    if (!fresh)
        return -ENOMEM;
    vb_dropin_open_init(fresh, ibv, cmd_fd);
    error = open_context(fresh);
    if (error) {
        vb_dropin_open_fini(fresh);
        free(fresh);
    } else {
        *made = fresh;
    }
    return error;
}

static int new_device_context(struct ibv_device *ibv, struct vb_open **made)
{
    int fd = vb_dropin_command_open(), error = fd < 0 ? fd : new_context(ibv, fd, made);

    if (error && fd >= 0)
        close(fd);
    return error;
}

VB_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *ibv)
{
    struct vb_open *made;
    int before = errno, error = new_device_context(ibv, &made);

    if (error) {
        char remedy[VB_REMEDY_SIZE];

        vb_dropin_open_remedy(error, remedy, sizeof(remedy));
        vb_dropin_log(VB_LOG_ERRORS, "cannot open %s: %s", ibv->name, remedy);
        return vb_dropin_null(error);
    }
    vb_dropin_log(VB_LOG_INFO, "opened %s, %s", ibv->name,
                  vb_dropin_simulated_of(ibv)
                      ? "a simulated host's adapter"
                      : "a software HCA, instead of the system's RDMA devices");
    errno = before; /* opening tries what a host may lack, and leaves such errors behind */
    return &made->verbs.context;
}

static void device_leave(struct vb_open *closed)
{
    struct vb_open **link = &vb_dropin_contexts()->first;

    while (*link && *link != closed)
        link = &(*link)->next;
    if (*link)
        *link = closed->next;
}

/* Under the contexts' mutex. False in a forked child, where the context and its objects stay in
 * memory: they are the parent's. */
static bool device_end(struct vb_open *closed)
{
    if (!closed->core)
        return false;
    closed->ended = closed->core;
    atomic_store(&closed->held, vb_context_end(closed->core) + 1);
    closed->xrcds = NULL; /* they are closed */
    vb_dropin_open_disable(closed);
    return true;
}

/*
 * This destroys the objects that the program left in the context, as the kernel does when it closes
 * a device file. Their memory stays until the program destroys them, which some programs do after
 * this call (vb_dropin_destroy_closed).
 */
VB_EXPORT int ibv_close_device(struct ibv_context *context)
{
    struct vb_open *closed = vb_dropin_open_of(context);
    struct vb_host *unused;
    bool ended;

    vb_lock_take(&vb_dropin_contexts()->mutex);
    device_leave(closed);
    ended = device_end(closed);
    if (ended && vb_dropin_simulated_of(context->device))
        vb_dropin_simulated_close(vb_dropin_simulated_of(context->device));
    unused = device_take_unused(context->device);
    vb_lock_release(&vb_dropin_contexts()->mutex);
    vb_dropin_adapter_log_counters(unused);
    if (unused)
        vb_host_close(unused);
    close(context->cmd_fd);
    context->cmd_fd = context->async_fd = -1;
    if (ended)
        vb_dropin_open_release(closed);
    return 0;
}

/* ---- import: objects of one context of this process under another one ---- */

/* Under the contexts' mutex: the next context with this command descriptor. */
static struct vb_open *next_with_identity(const struct vb_open *after, uint64_t identity)
{
    for (struct vb_open *each = after ? after->next : vb_dropin_contexts()->first; each;
         each = each->next)
        if (each->core && vb_dropin_command_identity(each->verbs.context.cmd_fd) == identity)
            return each;
    return NULL;
}

/* NULL: no context of this process has it. */
static struct ibv_device *device_with(uint64_t identity)
{
    const struct vb_open *found;

    vb_lock_take(&vb_dropin_contexts()->mutex);
    found = next_with_identity(NULL, identity);
    vb_lock_release(&vb_dropin_contexts()->mutex);
    return found ? found->verbs.context.device : NULL;
}

VB_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
    uint64_t identity = vb_dropin_command_identity(cmd_fd);
    struct ibv_device *device = identity ? device_with(identity) : NULL;
    struct vb_open *made;
    int error = 0;

    if (!identity)
        return vb_dropin_null(-EINVAL);
    if (!device) {
        vb_dropin_log(VB_LOG_ERRORS,
                      "a context of another process cannot be imported: its objects are "
                      "that process's memory");
        return vb_dropin_null(-EOPNOTSUPP);
    }
    error = new_context(device, cmd_fd, &made);
    return error ? vb_dropin_null(error) : &made->verbs.context;
}

int vb_dropin_import(struct ibv_context *context, vb_import_one *one, void *to, uint32_t handle,
                     void *made)
{
    struct vb_open *from = NULL;
    uint64_t identity = vb_dropin_command_identity(context->cmd_fd);
    int error = -ENOENT;

    if (!vb_dropin_core(context))
        return -VB_ERROR_FORKED;
    vb_lock_take(&vb_dropin_contexts()->mutex);
    while (error == -ENOENT && (from = next_with_identity(from, identity)))
        error = one(to, from->core, handle, made);
    vb_lock_release(&vb_dropin_contexts()->mutex);
    return error;
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
