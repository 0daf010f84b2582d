// SPDX-License-Identifier: Apache-2.0
/* A process's end of connections that go by packets, over 127.0.0.1 or what the test made. */
#ifndef VB_TESTS_STATION_H
#define VB_TESTS_STATION_H

#include "hca/hca.h"
#include "host/host.h"

enum { STATION_BYTES = 1 << 20, STATION_DEPTH = 128 };

struct station {
    struct ibv_context ibv;
    struct vb_host *host;
    struct vb_context *context;
    struct vb_pd *pd;
    struct vb_channel *channel;
    struct vb_cq *cq;
    struct vb_mr *mr;
    uint8_t *memory;
};

/* What one says to the other. */
struct station_card {
    uint32_t qp_num;
    uint32_t rkey;
    uint64_t addr;
};

struct station_route {
    const char *from, *to; /* NULL: 127.0.0.1 */
    enum ibv_mtu mtu;      /* 0: 1024 */
    uint8_t timeout;       /* 0: 12, which is 17 ms */
    uint8_t rnr_retry;     /* 0: 7, which is for ever */
};

/* `from` is an address of this host. */
void station_open(struct station *station, const struct vb_host_config *config);
void station_close(struct station *station);
struct vb_qp *station_qp(struct station *station, enum ibv_qp_type type);
struct station_card station_card(const struct station *station, const struct vb_qp *qp);
/* To RTR: 0, or what modify_qp said. */
int station_to_rtr(struct station *station, struct vb_qp *qp, const struct station_card *peer,
                   struct station_route route);
void station_connect(struct station *station, struct vb_qp *qp, const struct station_card *peer,
                     struct station_route route);
struct ibv_ah_attr station_address(struct station *station, struct station_route route);

void station_post(struct station *station, struct vb_qp *qp, enum ibv_wr_opcode opcode,
                  uint32_t length, const struct station_card *peer);
void station_post_recv(struct station *station, struct vb_qp *qp, uint32_t offset, uint32_t length);
/* The next completion, polling for it; or, without a poll, from the channel. */
struct ibv_wc station_wait(struct vb_cq *cq, double seconds);
struct ibv_wc station_sleep(struct station *station, double seconds);

#endif
