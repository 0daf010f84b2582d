// SPDX-License-Identifier: Apache-2.0
/*
 * How a failed call ends: it sets errno, keeps the reason for verbena_why, and logs a line if
 * VERBENA_LOG is set. Every exported call ends with one of these if it fails; calls that succeed
 * run nothing of this.
 */
#ifndef VB_DROPIN_FAILURES_H
#define VB_DROPIN_FAILURES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock/mutex.h"

struct ibv_context;
struct ibv_wc;

/* How many failures were not logged since the last one that was. */
struct vb_left_out {
    uint64_t many;  /* because a second had too many lines */
    uint64_t alike; /* because the same call had just failed with the same words, but for numbers */
};

/*
 * What limits the lines of a context: a second has few of them, and the rest is counted. Failures
 * in a row that differ in numbers only are counted, too: programs find limits by calls that fail
 * (libfabric: max_inline_data), or post again and again until there is room.
 */
struct vb_lines {
    struct vb_mutex mutex;
    uint64_t second;   /* of CLOCK_MONOTONIC, in which the last line was written */
    uint32_t shown;    /* lines in `second` */
    uint32_t words;    /* a hash of the last line without its numbers (hash_words); 0: none */
    uint64_t words_at; /* the second of the last failure with `words` */
    struct vb_left_out left_out;
    bool said_once; /* vb_dropin_failed_once has written its line */
    uint32_t flush; /* the vendor_err of the last flushed request that was logged */
};

/* Ends a failed call of the context. `error` is a core's negative errno; this sets errno and
 * returns the positive number. */
int vb_dropin_failed(struct ibv_context *context, const char *call, int error)
    __attribute__((cold, noinline));

/* The same for calls with which programs search, whose failures mean little: all such calls of the
 * context have one line together. */
int vb_dropin_failed_once(struct ibv_context *context, const char *call, int error)
    __attribute__((cold, noinline));

/* The same for an `error` that may be 0: returns what verbs that return an int do. */
static inline int vb_dropin_result(struct ibv_context *context, const char *call, int error)
{
    return __builtin_expect(error != 0, 0) ? vb_dropin_failed(context, call, error) : 0;
}

/* The same for verbs that return a pointer, and for verbs that return -1. */
static inline void *vb_dropin_failed_null(struct ibv_context *context, const char *call, int error)
{
    vb_dropin_failed(context, call, error);
    return 0;
}

static inline int vb_dropin_failed_minus_one(struct ibv_context *context, const char *call,
                                             int error)
{
    vb_dropin_failed(context, call, error);
    return -1;
}

/* Ends a call that no device offers: errno, and the line. */
void vb_dropin_not_offered(const char *call) __attribute__((cold, noinline));

/* Logs a completion with error that was polled. errno stays. */
void vb_dropin_completion_failed(struct ibv_context *context, const struct ibv_wc *wc)
    __attribute__((cold, noinline));

/* Writes why the completion with this vendor_err failed. Returns the length as snprintf does, or 0
 * if the reason is not known. */
int vb_dropin_completion_text(struct ibv_context *context, uint32_t vendor_err, char *text,
                              size_t size);

void vb_dropin_lines_init(struct vb_lines *lines);
/* Logs how many failures were not shown since the last line. */
void vb_dropin_lines_fini(struct vb_lines *lines);

#endif
