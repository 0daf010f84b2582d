// SPDX-License-Identifier: Apache-2.0
/*
 * Connections of a program to the agent, the process that manages connections for the programs of
 * one user in one network namespace (src/verbena/agent). rdma_cm.c passes commands on and gives
 * answers back; what they mean is the agent's business alone.
 *
 * Both kinds of connections are SEQPACKET sockets to the abstract name verbena/agent/UID, and begin
 * with a hello, which the agent answers with a welcome. The process of a live fabric is the agent
 * of the programs at its hosts, at verbena/agent/UID/FABRIC (src/verbena/subnet_process).
 */
#ifndef VB_PRELOAD_PATHS_MANAGER_AGENT_H
#define VB_PRELOAD_PATHS_MANAGER_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VB_AGENT_MAGIC 0x5662416eu /* VbAn */

enum {
    VB_AGENT_VERSION = 3,    /* of these messages: src/verbena/agent/messages.py has the same */
    VB_AGENT_COMMAND = 512,  /* bytes, the longest command */
    VB_AGENT_MESSAGE = 8192, /* bytes, the longest message with answers */
    VB_AGENT_EVENT = 2048,   /* bytes, a message with an event */
    VB_AGENT_EVENTS = 64,    /* more than ever wait in a descriptor */
    VB_AGENT_PORTS = 1024,   /* bytes, the description of a process's ports */
};

enum vb_agent_role {
    VB_AGENT_DEVICE = 1, /* the descriptor of an opened device: the agent sends events */
    VB_AGENT_CALLS,      /* requests and their answers, for one thread */
};

struct vb_agent_hello {
    uint32_t magic, version, role, reserved;
    uint64_t inode; /* of the program's end of the socket: requests name a device by it */
    char ports[VB_AGENT_PORTS]; /* a line for each: device, port, GUID, link layer, LID, interface;
                                 * of a program at a host of a live fabric, "at HOST" */
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
    VB_AGENT_TAKE_BACK = 1, /* events are to be taken from the descriptor, and the command given
                             * again, followed by their count and their serial numbers */
    VB_AGENT_AGAIN = 2,     /* another thread does so: the command is to be given again */
    VB_AGENT_REMEMBER = 4,  /* identifier `id` is bound to a device, and has the uid `context` */
    VB_AGENT_FORGET = 8,    /* identifier `id` is gone */
    VB_AGENT_CHANGED = 16,  /* what was answered in advance about `id` holds no more */
};

enum { VB_AGENT_SENTENCE = ~0u }; /* an answer to no command: a line for the program's log */

/* A message has the answer to the request, or an event as GET_EVENT gives it, and then answers to
 * commands that programs give next, each behind the one before at the next multiple of 8 bytes. One
 * with an event is padded; the `option` of its first answer is its length without that. */
struct vb_agent_answer {
    int32_t error;         /* -errno */
    uint32_t flags;        /* enum vb_agent_flags */
    uint32_t length;       /* of `data` */
    uint32_t gid_index_at; /* where in `data` the index of `gid` belongs, a byte; 0: nowhere */
    uint8_t gid[16];
    uint32_t device, port;
    uint32_t command, id, option; /* what is answered */
    uint32_t serial;              /* larger in a newer message */
    uint64_t context;
    uint8_t data[];
};

/* Connects, and starts the agent if there is none. The descriptor, or -errno after a line on stderr
 * that says what to do. */
int vb_preload_agent_open(enum vb_agent_role role, int flags);

/* Whether the agent at the other end of a device's descriptor has ended. */
bool vb_preload_agent_has_ended(int device);

/* Sends a request with a command of `size` bytes, which was written to `device`, and waits for its
 * answer. 0, or -errno where the agent has ended or does not answer. `answer` is this thread's, and
 * stands until its next call. */
int vb_preload_agent_call(int device, const struct vb_agent_request *request, size_t size,
                          struct vb_agent_answer **answer);

/* Writes the sentences of a message to the program's log. */
void vb_preload_agent_log(const struct vb_agent_answer *message, size_t length);

/* Starts an agent that goes on when this process has ended. 0, or -errno. */
int vb_preload_agent_start(void);

/* ---- what is known of identifiers (identifiers.c) ---- */

enum {
    VB_AGENT_QUERY = 24
}; /* bytes of QUERY, QUERY_ROUTE and INIT_QP_ATTR: a head, a pointer for
    * the answer, an identifier and an option */

/* Notes what a message says of an identifier. */
void vb_preload_ids_note(const struct vb_agent_request *request,
                         const struct vb_agent_answer *message, size_t length);

/* Copies the answer to a query into `answer`, if it came in advance. */
bool vb_preload_ids_answer(const struct vb_agent_request *request, struct vb_agent_answer *answer);

/* Forgets an identifier of a device whose agent has ended. False if there is none left. */
bool vb_preload_ids_take(uint64_t inode, uint32_t *id, uint64_t *context);

/* The answer behind `answer` in a message of `length` bytes, or NULL; the first one for NULL. */
struct vb_agent_answer *vb_preload_agent_next(const struct vb_agent_answer *message, size_t length,
                                              const struct vb_agent_answer *answer);

#endif
