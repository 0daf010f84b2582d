// SPDX-License-Identifier: Apache-2.0
/*
 * Why a call failed: the sentence, with the numbers that it speaks of. The code that refuses a call
 * says so on the spot,
 *
 *     return vb_decline(context, -EINVAL, "{0n} is {1}: it may be {2} to {3}",
 *                       VB_NAME("retry_cnt"), attr->retry_cnt, 0, 7);
 *
 * which keeps a pointer and four numbers, per context and thread; whoever wants to read them
 * together asks for the text. A number is written as the letter behind its place says: none
 * decimal, i with its sign, x hexadecimal, n a name (VB_NAME), s a QP's state, t its type, o an
 * opcode of a send request, a access flags, m a mask of ibv_modify_qp, v a version of Verbena
 * (eight characters at most), g a GID: this number and the next are its halves.
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
    int error;   /* positive; 0: empty */
    bool closed; /* the call that it is about has ended */
    const char *because;
    uint64_t number[VB_DECLINE_NUMBERS];
};

/* The last few of a context; each thread finds its own latest. */
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

/*
 * The calling thread's call has ended with `error` (negative). What was kept during it is what
 * vb_decline_text tells from now on; if nothing was, that nothing is known.
 */
void vb_decline_close(struct vb_context *context, int error);

/*
 * Why the calling thread's latest failed call of this context failed, in a sentence or two; its
 * length as snprintf's. 0 if it ended with another error, or nothing is known but that.
 */
int vb_decline_text(struct vb_context *context, int error, char *text, size_t size);

#endif
