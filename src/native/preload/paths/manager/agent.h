// SPDX-License-Identifier: Apache-2.0
/*
 * Connections of a program to the agent, the process that manages connections for the programs of
 * one user in one network namespace (src/verbena/agent). rdma_cm.c passes commands on and gives
 * answers back; what they mean is the agent's business alone.
 *
 * Both kinds of connections are SEQPACKET sockets to the abstract name verbena/agent/UID, and begin
 * with a hello, which the agent answers with a welcome.
 */
#ifndef VB_PRELOAD_PATHS_MANAGER_AGENT_H
#define VB_PRELOAD_PATHS_MANAGER_AGENT_H

#include <stddef.h>
#include <stdint.h>

#define VB_AGENT_MAGIC 0x5662416eu /* VbAn */

enum {
    VB_AGENT_VERSION = 1,   /* of these messages: src/verbena/agent/messages.py has the same */
    VB_AGENT_COMMAND = 512, /* bytes, the longest command */
    VB_AGENT_DATA = 8192,   /* bytes, the longest answer */
    VB_AGENT_PORTS = 1024,  /* bytes, the description of a process's ports */
};

enum vb_agent_role {
    VB_AGENT_DEVICE = 1, /* the descriptor of an opened device: the agent sends one byte while there
                          * are events */
    VB_AGENT_CALLS,      /* requests and their answers, for one thread */
};

struct vb_agent_hello {
    uint32_t magic, version, role, reserved;
    uint64_t inode; /* of the program's end of the socket: requests name a device by it */
    char
        ports[VB_AGENT_PORTS]; /* a line for each: device, port, GUID, link layer, LID, interface */
};

struct vb_agent_welcome {
    uint32_t magic, version;
    int32_t error; /* -errno */
    int32_t pid;
};

struct vb_agent_request {
    uint64_t inode; /* of the descriptor that was written to */
    uint64_t other; /* of the descriptor that a MIGRATE_ID names, else 0 */
    uint8_t command[VB_AGENT_COMMAND];
};

enum vb_agent_flags {
    VB_AGENT_TAKE_BACK =
        1, /* the byte that said that there are events is to be read: none is left */
    VB_AGENT_WAIT_AGAIN = 2, /* the event is gone since the byte was sent */
};

struct vb_agent_answer {
    int32_t error;         /* -errno */
    uint32_t flags;        /* enum vb_agent_flags */
    uint32_t length;       /* of `data` */
    uint32_t gid_index_at; /* where in `data` the index of `gid` belongs, a byte; 0: nowhere */
    uint8_t gid[16];
    uint32_t device, port;
    uint8_t data[VB_AGENT_DATA];
};

#define VB_AGENT_ANSWER_HEAD offsetof(struct vb_agent_answer, data)

/* Connects, and starts the agent if there is none. The descriptor, or -errno after a line on stderr
 * that says what to do. */
int vb_preload_agent_open(enum vb_agent_role role, int flags);

/* Sends a request with a command of `size` bytes and waits for its answer. 0, or -errno where the
 * agent has ended or does not answer. */
int vb_preload_agent_call(const struct vb_agent_request *request, size_t size,
                          struct vb_agent_answer *answer);

/* Starts an agent that goes on when this process has ended. 0, or -errno. */
int vb_preload_agent_start(void);

#endif
