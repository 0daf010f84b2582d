// SPDX-License-Identifier: Apache-2.0
/* The device list, opening and closing, and what a fork does to what is open. */
#include "dropin/device.h"

#include <endian.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "abi/calls.h"
#include "dropin/command.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/hint.h"
#include "dropin/settings.h"
#include "dropin/simulated.h"
#include "dropin/sysfs.h"
#include "host/capture_direct.h"
#include "lock/mutex.h"
#include "memory/process_heap.h"
#include "port/gid.h"
#include "port/run_note.h"
#include "sim/connect.h"
#include "wrap/capture.h"

/* The C interface hands out device pointers that must stay the same, so these are the process's. */
static struct verbs_device device;
static const char device_ops[1]; /* only its address counts */
static pthread_once_t device_once = PTHREAD_ONCE_INIT;

static struct vb_mutex opened_mutex = VB_MUTEX_INITIALIZER(VB_RANK_DEVICES);
static struct vb_open *opened; /* all contexts, over the one adapter */
static struct vb_host *host;

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
    vb_port_run_note_set(VB_NOTE_DEVICE);
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
    struct vb_simulated *simulated = vb_dropin_simulated_of(ibv);

    return htobe64(simulated ? vb_dropin_simulated_guid(simulated) : vb_port_device_guid());
}

VB_EXPORT int ibv_get_device_index(struct ibv_device *ibv)
{
    (void)ibv;
    return -1; /* it numbers devices for NETLINK_RDMA, where the kernel does not know this one */
}

/* ---- fork: the adapter stays the parent's ---- */

static void device_before_fork(void)
{
    vb_lock_take(&opened_mutex);
}

static void device_after_fork_in_parent(void)
{
    vb_lock_release(&opened_mutex);
}

static void device_after_fork_in_child(void)
{
    vb_thread_forget_number();
    vb_memory_watch_forget();
    for (struct vb_open *each = opened; each; each = each->next) {
        vb_dropin_open_kill(each);
        vb_dropin_lines_init(&each->lines); /* a thread of the parent's may have held the lock */
    }
    opened = NULL;
    if (host)
        vb_host_abandon(host);
    host = NULL;
    vb_lock_init(&opened_mutex, VB_RANK_DEVICES);
}

static void watch_forks(void)
{
    pthread_atfork(device_before_fork, device_after_fork_in_parent, device_after_fork_in_child);
}

/* ---- open and close ---- */

static bool files_are_limited(void)
{
    struct rlimit file;

    return getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur != RLIM_INFINITY;
}

static void *device_nothing(void *argument)
{
    return argument;
}

static bool threads_are_forbidden(void)
{
    pthread_t tried;
    int error = pthread_create(&tried, NULL, device_nothing, NULL);

    if (!error)
        pthread_join(tried, NULL);
    return error == EPERM;
}

static const char *usual_remedy(int error)
{
    if ((error == -ENOMEM || error == -EFBIG) && files_are_limited())
        return "its tables need a file of 64 MiB: raise `ulimit -f`, or lift it";
    switch (error) {
    case -EAGAIN:
        return "its threads cannot be started: this user's processes and threads are at their "
               "limit. Raise `ulimit -u`, or that of the container (docker run --pids-limit)";
    case -EADDRINUSE:
        return VB_ROCE_PORT_IS_TAKEN
            ". Without VERBENA_CARRIER=roce the processes of this host are "
            "reached all the same, but for another user's: run both as "
            "one user, or each in a network namespace of its own";
    case -EMFILE:
        return "this process has too many open files: raise `ulimit -n`";
    case -ENFILE:
        return "the system has too many open files: raise fs.file-max";
    case -ENOMEM:
        return "no memory for its tables: free some, or set VERBENA_HEAP_SIZE=64M, with which they "
               "are smaller";
    case -EUSERS:
        return "every place on this host is taken by another process that has it open";
    case -ENOSYS:
    case -EPERM:
        if (threads_are_forbidden())
            return "a thread cannot be started: clone3 is forbidden. The container's seccomp "
                   "filter has to allow it, or to answer ENOSYS, as Docker's does since 20.10.10";
        return "the system forbids a call that it needs (memfd_create, socket, epoll, getrandom): "
               "look at the container's seccomp filter; `verbena doctor` says which";
    default:
        return strerror(-error);
    }
}

void vb_dropin_open_remedy(int error, struct vb_space_text *to)
{
    bool may_be_space = (error == -ENOMEM || error == -EAGAIN) && !files_are_limited();

    if (!may_be_space || !vb_dropin_space_remedy(to))
        snprintf(to->text, sizeof(to->text), "%s", usual_remedy(error));
}

/* From the port's thread: the port's state or its GIDs have changed. */
static void tell_contexts(void *argument, uint8_t port_num, enum ibv_event_type type)
{
    (void)argument;
    vb_lock_take(&opened_mutex);
    for (struct vb_open *each = opened; each; each = each->next)
        if (each->core && each->host)
            vb_event_raise_port(each->core, type, port_num);
    vb_lock_release(&opened_mutex);
}

/* Who asked for faults or a capture must not go without in silence. */
static void say_without_packets(int error)
{
    const struct vb_settings *settings = vb_dropin_settings();

    vb_dropin_log(settings->fault || (settings->capture && !settings->capture_direct)
                      ? VB_LOG_ERRORS
                      : VB_LOG_INFO,
                  "no RoCE (%s): only processes on this host are reached, without packets",
                  error == -EADDRINUSE ? VB_ROCE_PORT_IS_TAKEN : strerror(-error));
}

/* The same where a peer on this host is reached without packets. */
static void say_without_faults(void)
{
    vb_dropin_log(
        VB_LOG_ERRORS,
        "a peer on this host is reached directly, without packets: VERBENA_FAULT (verbena run "
        "--fault) does nothing to it; VERBENA_CARRIER=roce on both sides makes packets");
}

static void say_without_capture(void)
{
    vb_dropin_log(
        VB_LOG_ERRORS,
        "a peer on this host is reached directly, without packets: VERBENA_CAPTURE (verbena run "
        "--capture) shows nothing of it; --capture-direct does, and VERBENA_CARRIER=roce on both "
        "sides makes packets");
}

static void say_without_both(void)
{
    say_without_faults();
    say_without_capture();
}

/* An InfiniBand port has said it already (settings.c). */
static void (*unheard_when_direct(const struct vb_settings *settings))(void)
{
    bool is_captured = settings->capture && !settings->capture_direct;

    if (settings->infiniband)
        return NULL;
    if (settings->fault && is_captured)
        return say_without_both;
    if (is_captured)
        return say_without_capture;
    return settings->fault ? say_without_faults : NULL;
}

static bool can_capture(const struct vb_capture_config *config)
{
    struct vb_capture *capture;
    int error = vb_wrap_capture_open(config, &capture);

    if (error)
        vb_dropin_log(VB_LOG_ERRORS, "nothing is captured into %s: %s", config->path,
                      vb_wrap_capture_problem(error));
    else
        vb_wrap_capture_close(capture);
    return !error;
}

/* What real packets and the direct port write are two captures, and one word is enough. */
static void say_not_written(int error)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&told))
        vb_dropin_log(VB_LOG_ERRORS,
                      "packets are missing in the capture %s: %s. The program goes on without them",
                      vb_dropin_settings()->capture, vb_wrap_capture_problem(error));
}

static void device_log_refusals(void *argument, const char *line)
{
    (void)argument;
    vb_dropin_log(VB_LOG_DEBUG, "packets refused: %s", line);
}

static void log_overdue(const char *line)
{
    vb_dropin_log(VB_LOG_ERRORS, "%s", line);
}

static void log_counter(const char *part, const char *name, uint64_t value)
{
    vb_dropin_log(VB_LOG_COUNTERS, "counted: %s.%s %llu", part, name, (unsigned long long)value);
}

/* When the device is closed for good, or the program ends with it open. */
static void tell_counters(struct vb_host *closing)
{
    if (closing && vb_dropin_settings()->log >= VB_LOG_COUNTERS)
        vb_host_tell_counters(closing, log_counter);
}

__attribute__((destructor)) static void end_at_exit(void)
{
    if (!vb_lock_try(&opened_mutex))
        return; /* another thread is closing it */
    if (host && host->roce)
        vb_roce_end(host->roce);
    tell_counters(host);
    vb_lock_release(&opened_mutex);
}

/* Under opened_mutex. */
static int device_open_adapter(void)
{
    const struct vb_settings *settings = vb_dropin_settings();
    struct vb_host_config config = {
        .heap = vb_memory_process_heap(),
        .ports = &settings->ports,
        .copies = settings->copy,
        .roce = {.event = tell_contexts,
                 .log = settings->log >= VB_LOG_DEBUG ? device_log_refusals : NULL,
                 .fault = settings->fault},
        .packets_only = settings->carrier == VB_CARRIER_ROCE,
        .direct_only = settings->carrier == VB_CARRIER_DIRECT,
        .went_direct = unheard_when_direct(settings),
    };
    const struct vb_capture_config capture = {.path = settings->capture,
                                              .bytes = settings->capture_bytes,
                                              .epoch = vb_wrap_capture_epoch_of_monotonic()};
    static pthread_once_t forks_once = PTHREAD_ONCE_INIT;
    int error;

    if (host)
        return 0;
    if (settings->capture && can_capture(&capture)) {
        config.roce.capture = &capture;
        config.capture_direct = settings->capture_direct ? &capture : NULL;
    }
    if (!config.heap)
        vb_dropin_log(VB_LOG_INFO, "no shared memory for applications (%s): copies take longer",
                      strerror(errno));
    pthread_once(&forks_once, watch_forks);
    error = vb_host_open(&config, &host);
    if (!error && host->roce && vb_roce_wrap(host->roce)->capture)
        vb_wrap_capture_tell(vb_roce_wrap(host->roce)->capture, say_not_written);
    if (!error && host->capture)
        vb_host_capture_direct_tell(host->capture, say_not_written);
    if (!error && settings->explain)
        host->adapter.tell = log_overdue;
    if (!error && host->roce_error)
        say_without_packets(host->roce_error);
    return error;
}

/* Under opened_mutex. Which adapter the context is to be of. */
static int find_adapter(struct vb_open *made, struct vb_adapter **adapter)
{
    struct vb_simulated *simulated = vb_dropin_simulated_of(made->verbs.context.device);
    int error =
        simulated ? vb_dropin_simulated_open(simulated, &made->simulated) : device_open_adapter();

    if (error)
        return error;
    made->host = simulated ? NULL : host;
    *adapter = simulated ? &made->simulated->adapter : &host->adapter;
    return 0;
}

static void device_enter(struct vb_open *made)
{
    made->next = opened;
    opened = made;
}

/* Under opened_mutex: the adapter, if no context of it is open. It is to be closed without the
 * mutex, for which one of its threads may wait. */
static struct vb_host *take_unused(void)
{
    struct vb_host *unused = host;

    for (const struct vb_open *each = opened; each; each = each->next)
        if (each->host)
            return NULL;
    host = NULL;
    return unused;
}

static int open_context(struct vb_open *made)
{
    struct ibv_context *context = &made->verbs.context;
    struct vb_adapter *adapter;
    struct vb_host *unused;
    int error;

    vb_lock_take(&opened_mutex);
    error = find_adapter(made, &adapter);
    if (!error) {
        error = vb_context_open(adapter, context, &made->core);
        if (error && made->simulated)
            vb_dropin_simulated_close(vb_dropin_simulated_of(context->device));
    }
    if (!error) {
        context->async_fd = made->core->async_fd;
        made->core->on_error = vb_dropin_hint_needed;
        device_enter(made);
    }
    unused = take_unused();
    vb_lock_release(&opened_mutex);
    if (unused)
        vb_host_close(unused);
    return error;
}

/* With a descriptor that becomes the context's, if there is no error. */
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
        struct vb_space_text remedy;

        vb_dropin_open_remedy(error, &remedy);
        vb_dropin_log(VB_LOG_ERRORS, "cannot open %s: %s", ibv->name, remedy.text);
        return vb_dropin_null(error);
    }
    vb_dropin_log(VB_LOG_INFO, "opened %s, %s", ibv->name,
                  vb_dropin_simulated_of(ibv)
                      ? "a simulated host's adapter"
                      : "a software HCA, instead of the system's RDMA devices");
    errno = before; /* much was tried that this host need not have */
    return &made->verbs.context;
}

static void device_leave(struct vb_open *closed)
{
    struct vb_open **link = &opened;

    while (*link && *link != closed)
        link = &(*link)->next;
    if (*link)
        *link = closed->next;
}

/* Under opened_mutex. In a forked child it stays in memory, as what the parent made in it does. */
static bool device_end(struct vb_open *closed)
{
    if (!closed->core)
        return false;
    closed->ended = closed->core;
    atomic_store(&closed->held, vb_context_end(closed->core) + 1);
    closed->xrcds = NULL; /* they are closed */
    vb_dropin_open_kill(closed);
    return true;
}

/*
 * What was left open in it goes too, as when the kernel closes a device file; but not the memory
 * that a program may still name: some destroy their objects after this (vb_dropin_bury).
 */
VB_EXPORT int ibv_close_device(struct ibv_context *context)
{
    struct vb_open *closed = vb_dropin_open_of(context);
    struct vb_host *unused;
    bool ended;

    vb_lock_take(&opened_mutex);
    device_leave(closed);
    ended = device_end(closed);
    if (ended && vb_dropin_simulated_of(context->device))
        vb_dropin_simulated_close(vb_dropin_simulated_of(context->device));
    unused = take_unused();
    vb_lock_release(&opened_mutex);
    tell_counters(unused);
    if (unused)
        vb_host_close(unused);
    close(context->cmd_fd);
    context->cmd_fd = context->async_fd = -1;
    if (ended)
        vb_dropin_open_let_go(closed);
    return 0;
}

bool vb_dropin_simulated_find_refusal(const struct vb_evidence *refused, struct vb_evidence *seen)
{
    bool found = false;

    vb_lock_take(&opened_mutex);
    for (const struct vb_open *each = opened; each && !found; each = each->next)
        found = each->simulated &&
                vb_evidence_of_refusal(&each->simulated->adapter.self, refused, seen);
    vb_lock_release(&opened_mutex);
    return found;
}

/* ---- import: what one context has, under another one of this process ---- */

/* Under opened_mutex: the next context with this command descriptor. */
static struct vb_open *next_of_family(const struct vb_open *after, uint64_t identity)
{
    for (struct vb_open *each = after ? after->next : opened; each; each = each->next)
        if (each->core && vb_dropin_command_identity(each->verbs.context.cmd_fd) == identity)
            return each;
    return NULL;
}

/* NULL: no context of this process has it. */
static struct ibv_device *device_of(uint64_t identity)
{
    const struct vb_open *found;

    vb_lock_take(&opened_mutex);
    found = next_of_family(NULL, identity);
    vb_lock_release(&opened_mutex);
    return found ? found->verbs.context.device : NULL;
}

VB_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
    uint64_t identity = vb_dropin_command_identity(cmd_fd);
    struct ibv_device *device = identity ? device_of(identity) : NULL;
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

/* Tries each context of the family. */
static int import(struct ibv_context *context, vb_import_one *one, void *argument, uint32_t handle)
{
    struct vb_open *from = NULL;
    uint64_t identity = vb_dropin_command_identity(context->cmd_fd);
    int error = -ENOENT;

    vb_lock_take(&opened_mutex);
    while (error == -ENOENT && (from = next_of_family(from, identity)))
        error = one(argument, from->core, handle);
    vb_lock_release(&opened_mutex);
    return error;
}

int vb_dropin_import(struct ibv_context *context, vb_import_one *one, void *argument,
                     uint32_t handle)
{
    return vb_dropin_core(context) ? import(context, one, argument, handle) : -VB_ERROR_FORKED;
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
