// SPDX-License-Identifier: Apache-2.0
/*
 * What libibverbs.so.1 offers besides libibverbs' own calls, with the symbol version VERBENA_1.
 * Python (src/verbena/verbs), the preloaded libraries and tests call these.
 */
#ifndef VB_DROPIN_VERBENA_H
#define VB_DROPIN_VERBENA_H

#include <stddef.h>
#include <stdint.h>

struct ibv_async_event;
struct ibv_comp_channel;
struct ibv_context;
struct ibv_device;
struct ibv_qp;
struct ibv_send_wr;
struct sigaction;
struct vb_sim_attachment;

/* Allocates zeroed memory that peers map; `align` is 0 or a power of two. NULL and errno on
 * failure. */
void *verbena_heap_alloc(size_t size, size_t align);
/* The same, but the contents are undefined. */
void *verbena_heap_alloc_unzeroed(size_t size, size_t align);
/* Shrinks or grows an allocation in place; what is added is zeroed. Returns 0, -ENOMEM if it would
 * have to move, or -EINVAL. */
int verbena_heap_resize(void *p, size_t size);
void verbena_heap_free(void *p);
/* Returns the usable bytes of an allocation, and 0 for any other pointer. */
size_t verbena_heap_size(const void *p);

/*
 * Writes why a request failed, by the vendor_err of its completion, in one or two sentences.
 * Returns their length as snprintf does, or 0 if the reason is not known.
 */
int verbena_explain(struct ibv_context *context, uint32_t vendor_err, char *text, size_t size);

/*
 * Writes why the calling thread's latest failed call on an object of the context failed, in one or
 * two sentences. `error` is the errno of that call, of either sign. Returns the length as above, or
 * 0 if nothing is known but the error. `context` is NULL after ibv_open_device failed.
 */
int verbena_why(struct ibv_context *context, int error, char *text, size_t size);

/*
 * Writes what put the QP of an event (QP_FATAL, QP_REQ_ERR, QP_ACCESS_ERR) in ERR, in one or two
 * sentences. The event must not be acknowledged yet. Returns the length as above, or 0 for other
 * events and if nothing is known.
 */
int verbena_event_text(const struct ibv_async_event *event, char *text, size_t size);

/*
 * ibv_wr_flush for a QP that was created without the ibv_wr_* calls. It uses wr_id, send_flags,
 * wr.rdma and qp_type.xrc of `wr`. Returns what ibv_post_send does.
 */
int verbena_post_flush(struct ibv_qp *qp, const struct ibv_send_wr *wr, size_t length, uint8_t type,
                       uint8_t level);

/* Writes JSON about the device's slot, its heap and its peers. Returns the length as snprintf does,
 * or -errno. */
int verbena_describe(struct ibv_context *context, char *json, size_t size);

/*
 * Writes what the device has counted since it was opened, as JSON: {"direct": {name: value, …},
 * "engine": …, "udp": …, "reuseport": …}. Returns the length as snprintf does, or -ENODEV in a
 * forked child.
 */
int verbena_counters(struct ibv_context *context, char *json, size_t size);

/*
 * Replaces the device's fault rules. They are given as records (wrap/fault_rules.h), which Python
 * makes of their words; NULL or "" removes all rules. Returns 0, -EINVAL with the complaint in
 * `error`, -EOPNOTSUPP if the device sends no packets, -ENOMEM, or -ENODEV in a forked child.
 */
int verbena_set_fault(struct ibv_context *context, const char *records, char *error, size_t size);

/*
 * The preloaded library (preload/paths/watch) reports by these what the program does
 * (memory/watch.h, vb_memory_guard_action): that the library is loaded, and where regions may be; a
 * change of memory (enum vb_mapping; 1: a region is there); the handler of a fault; a change of the
 * calling thread's signal mask.
 */
void verbena_watch_begin(void);
const void *verbena_watch_map(void);
int verbena_mapping(const void *at, size_t n, int change);
int verbena_fault_action(int number, const struct sigaction *action, struct sigaction *old);
void verbena_mask_changes(void);

/* Writes how often each rule matched and acted, a line for each. Returns the length as snprintf
 * does, or -errno as above. */
int verbena_fault_counters(struct ibv_context *context, char *text, size_t size);

/*
 * Makes an empty capture of this file, which may be an earlier capture; any other file is not
 * touched. Returns 0, or -errno with the complaint in `error`.
 */
int verbena_begin_capture(const char *path, char *error, size_t size);

/* ---- simulated fabrics: what the Python binding of the world calls (sim/attachment.h) ---- */

/*
 * Makes a device of this name, in no list, whose adapter is the simulated host of the attachment
 * while the device is open. The attachment must outlive the device, and the device its contexts.
 * Returns 0, -EPROTO for an attachment of another version of Verbena, -ENAMETOOLONG or -ENOMEM. The
 * world goes on only by verbena_step, by polling, and when its owner runs it, so a read of the
 * device's descriptors must not block.
 */
int verbena_attach(struct vb_sim_attachment *attachment, const char *name,
                   struct ibv_device **device);
void verbena_detach(struct ibv_device *device);

/*
 * Runs the next event of the context's world if it is not after `until` (ps), and returns 1.
 * Otherwise it sets the world's time to `until` and returns 0. With `until` 0 the call counts as a
 * poll that found nothing, many of which let time pass. Errors: -EDEADLK if no event will come,
 * -ENOMEM, -EOPNOTSUPP if the device is not simulated.
 */
int verbena_step(struct ibv_context *context, uint64_t until);
/* Returns the time of the context's world in ps, or UINT64_MAX if the device is not simulated. */
uint64_t verbena_world_time(struct ibv_context *context);
/* Returns the time in ps at which what its adapter writes now is in memory: later than now where
 * the host has an inside. UINT64_MAX if the device is not simulated. */
uint64_t verbena_written_time(struct ibv_context *context);

/*
 * If `keep` is not 0, events of this channel do not make its descriptor readable from now on, for a
 * caller that the world informs. If it is 0, this ends, and events that were not read make the
 * descriptor readable. Returns 0, -ENOMEM, -EOPNOTSUPP if the device is not simulated, or -ENODEV.
 */
int verbena_keep_events(struct ibv_comp_channel *channel, int keep);
/* Returns how many events it has kept. */
uint32_t verbena_kept_events(const struct ibv_comp_channel *channel);
/*
 * For a host whose programs are woken by interrupts: returns for how many of the events that are
 * not read, the oldest, one has come. With `all` not 0 it has just come for all of them.
 */
uint32_t verbena_raised_events(struct ibv_comp_channel *channel, int all);

#endif
