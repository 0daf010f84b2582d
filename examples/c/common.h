// SPDX-License-Identifier: Apache-2.0
/*
 * Functions of all C examples: they open the device, and exchange addresses with the peer over TCP.
 * Real programs do that over a connection that they have anyway, or by librdmacm.
 */
#pragma once

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PORT = 1, GIDS = 256, TCP_PORT = 18515, QKEY = 0x11111111 };

/* How one side is reached. Both run the same program on like machines, so it is sent as it is. */
struct address {
    union ibv_gid gid;
    uint32_t qp_num, psn;
    uint64_t addr; /* of the memory that the peer may use, with its key */
    uint32_t rkey;
};

struct side {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    void *memory;
    int socket;
    uint8_t gid_index; /* which of the port's addresses it uses; chosen with the peer */
    struct address peer;
};

/* Ends the program with a message. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The same with errno's text unless `good`, for calls that set errno. */
void check(bool good, const char *what);

/* The same for calls that return the error's number, and need not set errno, as most verbs do. */
void check_result(int error, const char *what);

/* Opens the first device; memory of `size` bytes for which the peer gets the rights `access`, a CQ
 * with `channel` (or NULL), and a QP of `type`, in the state INIT. */
struct side open_side(enum ibv_qp_type type, size_t size, int access, bool with_channel);

/* Listens when `server` is NULL, or connects to it, chooses a GID, and exchanges addresses. */
void meet(struct side *side, const char *server);

/* Brings an RC QP to RTS, towards the peer that was met. */
void connect_rc(struct side *side);

/* Waits until the peer has come here as well; each must call it equally often. */
void rendezvous(struct side *side);

/* Returns whether a completion was there; ends the program if it has an error. */
bool poll_once(struct side *side, struct ibv_wc *wc);

/* Polls until one request is complete, which must have succeeded. */
struct ibv_wc completion(struct side *side);

void close_side(struct side *side);
