// SPDX-License-Identifier: Apache-2.0
/*
 * Why a call failed. The code that refuses a call gives the sentence and its numbers on the spot:
 *
 *     return vb_decline(context, -EINVAL, "{0n} is {1}: it may be {2} to {3}",
 *                       VB_NAME("retry_cnt"), attr->retry_cnt, 0, 7);
 *
 * That keeps a pointer and four numbers, for each context and thread; the sentence is made of them
 * when it is read (vb_decline_text). The letter behind a number's index says how it is written:
 * none decimal, i with its sign, x hexadecimal, n a name (VB_NAME), s a QP's state, t its type, o
 * an opcode of a send request, a access flags, m a mask of ibv_modify_qp, v a version of Verbena
 * (eight characters at most), g a GID, of which this number and the next are the halves.
 */
#ifndef VB_HCA_DECLINE_H
#define VB_HCA_DECLINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock/mutex.h"

struct vb_context;

enum { VB_DECLINE_NUMBERS = 4, VB_DECLINES = 16 };

struct vb_declined {
    pthread_t thread;
    int error;   /* positive; 0: the record is empty */
    bool closed; /* the call that was refused has ended */
    const char *because;
    uint64_t number[VB_DECLINE_NUMBERS];
};

/* The latest refusals of a context; each thread finds its own. */
struct vb_declines {
    struct vb_mutex mutex;
    uint32_t next;
    struct vb_declined entry[VB_DECLINES];
};

#define VB_NAME(literal) ((uintptr_t)(literal))

/* Keeps the reason and returns `error`, a negative errno. `because` lives as long as the library.
 */
#define vb_decline(context, error, because, ...)                                                   \
    vb_decline_with(context, error, because, (const uint64_t[VB_DECLINE_NUMBERS]){__VA_ARGS__})

int vb_decline_with(struct vb_context *context, int error, const char *because,
                    const uint64_t number[VB_DECLINE_NUMBERS]) __attribute__((cold, noinline));

/* Moves the reason that the calling thread's call was refused with `error`, if it was kept in
 * `from`, to the context by which the program called. */
void vb_decline_move(struct vb_context *from, struct vb_context *to, int error);

/*
 * Ends the calling thread's call, which failed with `error` (negative). From now on vb_decline_text
 * gives the refusal that was kept during this call, or nothing if none was.
 */
void vb_decline_close(struct vb_context *context, int error);

/*
 * Writes why the calling thread's latest failed call of this context failed. Returns the length as
 * snprintf does; 0 if that call ended with another error, or if no reason was kept.
 */
int vb_decline_text(struct vb_context *context, int error, char *text, size_t size);

#endif
