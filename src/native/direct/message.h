// SPDX-License-Identifier: Apache-2.0
/*
 * The messages that the direct carriers of two processes send each other over their socket. They
 * are rare: a request sends none unless its peer has to help, or sleeps.
 */
#ifndef VB_DIRECT_MESSAGE_H
#define VB_DIRECT_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/layout.h"

enum vb_message_type {
    VB_MSG_HELLO = 1,      /* who I am, with my segment and heap as descriptors */
    VB_MSG_WELCOME,        /* the answer, the same */
    VB_MSG_QP_NOTICE,      /* look at the notices of your QP `object` */
    VB_MSG_CQ_NOTICE,      /* look at the notices of your CQ `object` */
    VB_MSG_SRQ_NOTICE,     /* look at the notices of your SRQ `object` */
    VB_MSG_CHANNEL_WANTED, /* let me wake the channel of your CQ `object` myself */
    VB_MSG_CHANNEL,        /* the channel with serial `value`, as two descriptors */
    VB_MSG_PLACE,          /* put the inline payloads in your CQ `object` into memory */
    VB_MSG_BOUNCE,         /* a job for you lies in my segment at `offset` */
    VB_MSG_COUNTERS = 10,  /* what have you counted? (query.h); the answer is no vb_message */
};

enum { VB_NO_LAYOUT = -1 }; /* the version in such a question */

/* Magic and version stay where they are in every layout, so that builds can name each other. */
struct vb_hello {
    uint64_t magic;
    uint32_t version; /* of the layout */
    uint32_t instance;
    uint32_t slots[VB_MAX_SLOTS];
    uint64_t segment_size;
    uint64_t header_offset;
    uint64_t heap_size;  /* 0: no heap */
    uint64_t probe_addr; /* two words: one to read, one to write */
    uint64_t probe_value;
};

enum { VB_PACKAGE_BYTES = 8 };

struct vb_message {
    uint32_t type;
    uint32_t object;
    uint32_t value;
    uint32_t reserved;
    union {
        uint64_t offset;
        char package[VB_PACKAGE_BYTES]; /* HELLO and WELCOME: the sender's version of Verbena */
    };
    struct vb_hello hello;
};

enum { VB_MESSAGE_FDS = 2 };

/* 0, or -errno; -EAGAIN when `wait` is false and the socket is full. */
int vb_direct_message_send(int socket, const struct vb_message *message, const int *fds,
                           int fd_count, bool wait);
/*
 * 0; -EPIPE at the end of the connection; -errno. Descriptors not sent are -1. A hello of another
 * layout may have another length: what it lacks is 0.
 */
int vb_direct_message_receive(int socket, struct vb_message *message, int fds[VB_MESSAGE_FDS]);

#endif
