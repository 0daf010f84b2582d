// SPDX-License-Identifier: Apache-2.0
/*
 * How a failed call ends: errno, the reason kept for who asks (verbena_why), and with VERBENA_LOG
 * set a line on stderr. Nothing here is run by a call that succeeds.
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

/* Failures that had no line since the last that had one. */
struct vb_left_out {
    uint64_t many;  /* there were too many lines in a second */
    uint64_t alike; /* the call had just failed with the same words, but for numbers */
};

/*
 * Lines on stderr are few in a second; the rest is counted. So are failures in a row that differ in
 * numbers only: programs find limits by calls that fail (libfabric: max_inline_data), or post again
 * and again until there is room.
 */
struct vb_lines {
    struct vb_mutex mutex;
    uint64_t second;   /* of CLOCK_MONOTONIC */
    uint32_t shown;    /* in it */
    uint32_t words;    /* of the last line, without numbers (hash_words); 0: none */
    uint64_t words_at; /* the second of the last failure with these words */
    struct vb_left_out left_out;
    bool told_once; /* vb_dropin_failed_once had its line */
    uint32_t flush; /* the evidence of the last flush that was told of: all its entries say the same
                     */
};

/* Ends a call of the context with a core's negative errno; sets errno and returns it, positive. */
int vb_dropin_failed(struct ibv_context *context, const char *call, int error)
    __attribute__((cold, noinline));

/* The same for what may fail often and mean little; one line for all such calls of the context. */
int vb_dropin_failed_once(struct ibv_context *context, const char *call, int error)
    __attribute__((cold, noinline));

/* The same for an error that may be 0, as verbs return it. */
static inline int vb_dropin_result(struct ibv_context *context, const char *call, int error)
{
    return __builtin_expect(error != 0, 0) ? vb_dropin_failed(context, call, error) : 0;
}

/* The same for verbs that return a pointer, or -1. */
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

/* A call that no device of ours offers; the line only. */
void vb_dropin_not_offered(const char *call) __attribute__((cold, noinline));

/* A completion with error was polled: a line, and errno stays. */
void vb_dropin_completion_failed(struct ibv_context *context, const struct ibv_wc *wc)
    __attribute__((cold, noinline));

/* Why the completion with this vendor_err failed; length as snprintf's, 0: not kept. */
int vb_dropin_completion_text(struct ibv_context *context, uint32_t vendor_err, char *text,
                              size_t size);

void vb_dropin_lines_init(struct vb_lines *lines);
/* Says how many were hidden last. */
void vb_dropin_lines_fini(struct vb_lines *lines);

#endif
