// SPDX-License-Identifier: Apache-2.0
/* One process's end of a connection to another process, and how test programs start the other. */
#ifndef VB_TESTS_END_H
#define VB_TESTS_END_H

#include <sys/types.h>

#include "hca/hca.h"
#include "host/host.h"

enum { END_BYTES = 1 << 16, END_DEPTH = 64 };

/* What an end tells the other. */
struct end_card {
    uint32_t qp_num;
    uint32_t rkey;
    uint64_t addr;
};

struct end_options {
    enum ibv_qp_type type; /* 0: RC */
    enum vb_way force;
    bool in_heap;    /* the region's memory: the shared heap, or the process's own */
    uint32_t srq_wr; /* 0: no SRQ */
    bool channel;
};

struct end {
    struct end_options options;
    struct ibv_context ibv;
    struct vb_heap *heap;
    struct vb_host *host;
    struct vb_direct *direct; /* the host's */
    struct vb_context *context;
    struct vb_pd *pd;
    struct vb_channel *channel;
    struct vb_cq *cq;
    struct vb_srq *srq;
    struct vb_qp *qp;
    struct vb_mr *mr;
    uint8_t *memory;
    struct end_card peer;
};

/* An adapter, a region and everything else but QPs; end_add_qp makes one in RESET. */
void end_open(struct end *end, struct end_options options);
void end_close(struct end *end);
struct vb_qp *end_add_qp(struct end *end);

/* To RTS (RC and UC: with this QP as its other end), without a word to the other process. */
void end_ready(struct vb_qp *qp, struct vb_qp *other);
/* Exchanges cards over the socket and goes to RTS; both sides are there when it returns. */
void end_connect(struct end *end, struct vb_qp *qp, int socket);
/* Both processes stand at the same place. */
void end_meet(int socket);

int end_post(struct end *end, struct vb_qp *qp, enum ibv_wr_opcode opcode, uint32_t length);
void end_post_recv(struct end *end, struct vb_qp *qp, uint64_t wr_id);
/* The next completion within `seconds`, or the test fails. */
struct ibv_wc end_wait(struct vb_cq *cq, double seconds);

/* This program again, as `ROLE FD`, with the other side of `socket`. */
pid_t end_spawn(const char *role, int *socket);
/* The same with another program. */
pid_t end_spawn_program(const char *program, const char *role, int *socket);
/* The socket of a process that end_spawn started in this role, or -1. */
int end_role(int argc, char **argv, const char *role);

struct end_play {
    const char *role;
    void (*run)(int socket);
};

/* Plays the role that this process was started in; false: in none. */
bool end_play(int argc, char **argv, const struct end_play *plays, size_t count);
void end_kill(pid_t child, int socket);

#endif
