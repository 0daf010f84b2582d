// SPDX-License-Identifier: Apache-2.0
/* What libibverbs.so.1 offers besides libibverbs' own calls, in the version node VERBENA_1. */
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

/* Zeroed memory that peers map; `align` 0 or a power of two. NULL and errno. */
void *verbena_heap_alloc(size_t size, size_t align);
/* The same with any contents. */
void *verbena_heap_alloc_unzeroed(size_t size, size_t align);
/* Smaller or larger where it is, zeroed where it grows. 0; -ENOMEM: it would have to move; -EINVAL.
 */
int verbena_heap_resize(void *p, size_t size);
void verbena_heap_free(void *p);
/* Usable bytes of an allocation, 0 for any other pointer. */
size_t verbena_heap_size(const void *p);

/*
 * The evidence behind an error completion (its vendor_err), in one or two sentences; returns
 * their length as snprintf does, 0 if none is kept.
 */
int verbena_explain(struct ibv_context *context, uint32_t vendor_err, char *text, size_t size);

/*
 * Why the calling thread's latest failed call on an object of the context failed, in one or two
 * sentences; `error` is what it failed with, of either sign. Length as above, 0 if nothing is known
 * but the error. Without a context: of ibv_open_device.
 */
int verbena_why(struct ibv_context *context, int error, char *text, size_t size);

/*
 * What put the QP of an event (QP_FATAL, QP_REQ_ERR, QP_ACCESS_ERR) in ERR, in one or two
 * sentences: that the peer's process ended, say. Before the event is acknowledged. Length as above,
 * 0 for other events and where nothing is known.
 */
int verbena_event_text(const struct ibv_async_event *event, char *text, size_t size);

/*
 * ibv_wr_flush for a QP that was created without the ibv_wr_* calls: of `wr` its wr_id, send_flags,
 * wr.rdma and qp_type.xrc count. Returns what ibv_post_send does.
 */
int verbena_post_flush(struct ibv_qp *qp, const struct ibv_send_wr *wr, size_t length, uint8_t type,
                       uint8_t level);

/* JSON about the device's slot, its heap and its peers; length as snprintf, or -errno. */
int verbena_describe(struct ibv_context *context, char *json, size_t size);

/*
 * What the device has counted since it was opened, as JSON: {"direct": {name: value, …},
 * "engine": …, "udp": …, "reuseport": …}. Length as snprintf, or -ENODEV: a forked child.
 */
int verbena_counters(struct ibv_context *context, char *json, size_t size);

/*
 * Rules in place of the device's present ones, as records (wrap/fault_rules.h), which Python
 * makes of their words; NULL or "": none. 0, -EINVAL and `error` says what is wrong, -EOPNOTSUPP:
 * the device sends no packets, -ENOMEM, -ENODEV: a forked child.
 */
int verbena_set_fault(struct ibv_context *context, const char *records, char *error, size_t size);

/*
 * What the watching library tells (preload/paths/watch), see memory/watch.h and
 * vb_memory_guard_action: it is there (and asks where regions may be); memory is about to be
 * protected, or perhaps moved (1: a region is there); the C library gets it back (1: as before); it
 * is about to be unmapped or replaced (1: a region is there, and the next is to be called), and was
 * or was not; it has been unmapped; the calling thread's signal mask changed.
 */
void verbena_watch_begin(void);
const void *verbena_watch_map(void);
int verbena_mapping_changes(const void *at, size_t n);
int verbena_mapping_freed(const void *at, size_t n);
int verbena_mapping_goes(const void *at, size_t n);
void verbena_mapping_went(const void *at, size_t n, int went);
void verbena_mapping_lost(const void *at, size_t n);
int verbena_fault_action(int number, const struct sigaction *action, struct sigaction *old);
void verbena_mask_changes(void);

/* How often each rule matched and acted, a line each; length as snprintf, or -errno as above. */
int verbena_fault_counters(struct ibv_context *context, char *text, size_t size);

/*
 * Makes an empty capture of this file, over an earlier one. 0, or -errno and `error` says why not;
 * a file that is no capture of ours is left alone.
 */
int verbena_begin_capture(const char *path, char *error, size_t size);

/* ---- simulated fabrics: what the Python binding of the world calls (sim/attachment.h) ---- */

/*
 * A device of this name, in no list, whose adapter is plugged in there while it is open. The jack
 * outlives the device, and the device its contexts. -EPROTO: a jack of another version of Verbena;
 * -ENAMETOOLONG, -ENOMEM. A read of its descriptors that blocks would be for ever: the world goes
 * on by verbena_step, by polling, and by who runs it.
 */
int verbena_attach(struct vb_sim_attachment *jack, const char *name, struct ibv_device **device);
void verbena_detach(struct ibv_device *device);

/*
 * The next event of the context's world, if it is not after `until` (ps): 1. 0: it is `until` now.
 * With `until` 0 it counts as a poll in vain, many of which let time pass.
 * -EDEADLK: nothing will happen any more; -ENOMEM; -EOPNOTSUPP: the device is not simulated.
 */
int verbena_step(struct ibv_context *context, uint64_t until);
/* The time of the context's world in ps; UINT64_MAX: the device is not simulated. */
uint64_t verbena_world_time(struct ibv_context *context);

/*
 * With `keep` not 0 events of this channel do not pass through its descriptor any more, which the
 * kernel never finds readable then: for who is told of them by the world. 0 ends that, and what was
 * not read is in the descriptor. -ENOMEM; -EOPNOTSUPP: the device is not simulated. -ENODEV.
 */
int verbena_keep_events(struct ibv_comp_channel *channel, int keep);
/* How many it has kept. */
uint32_t verbena_kept_events(const struct ibv_comp_channel *channel);

#endif
