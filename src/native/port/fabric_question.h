// SPDX-License-Identifier: Apache-2.0
/*
 * How a program begins to talk to the process of the fabric to whose host it is attached
 * (src/verbena/subnet_process; VERBENA_FABRIC and VERBENA_HOST, which `verbena run --fabric` sets):
 * it connects, says hello and gets a welcome. fabric.c does so for the data of an adapter, and the
 * path library for devices and files.
 */
#ifndef VB_PORT_FABRIC_QUESTION_H
#define VB_PORT_FABRIC_QUESTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* src/verbena/subnet_process/messages.py has the same. */
enum vb_fabric_role {
    VB_FABRIC_UMAD = 1, /* the descriptor of umadN */
    VB_FABRIC_ISSM,     /* the descriptor of issmN, whose welcome may take any time */
    VB_FABRIC_CALL,     /* an ioctl, or a write whose errno the process decides */
    VB_FABRIC_TREE,     /* the list of the host's files */
    VB_FABRIC_FILE,     /* the contents of one */
    VB_FABRIC_PAGE = 7, /* the page of ports and flows */
};

struct vb_fabric_question {
    enum vb_fabric_role role;
    unsigned number;      /* the host's port, from 1, or what the page is for */
    uint64_t inode;       /* of the descriptor that a call is about */
    struct iovec data[2]; /* what follows the hello */
    int attached;         /* a descriptor that goes with it, or -1 */
};

/* Room for an answer, which becomes a sentence if there is an error. */
struct vb_fabric_reply {
    void *data;
    size_t room, length;
    int fd; /* one that came with it, or -1 */
};

/* Returns a connection with these flags of socket(2), whose waits end after so many seconds. */
int vb_port_fabric_reach(int flags, int seconds);
/* Says hello and waits for the welcome. 0, or -errno. */
int vb_port_fabric_greet(int fd, const struct vb_fabric_question *question,
                         struct vb_fabric_reply *reply);
/* Writes why there is no answer, and what to do. */
void vb_port_fabric_explain(int error, char *sentence, size_t size);

#endif
