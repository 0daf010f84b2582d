// SPDX-License-Identifier: Apache-2.0
/* A UDP flow over loopback whose packets are made here, for tests of who gets them. No engine sends
 * them: SEND Only of 16 bytes with a right ICRC, to any queue pair and with any PSN. */
#ifndef VB_TESTS_FLOW_H
#define VB_TESTS_FLOW_H

#include "roce/udp.h"

struct flow {
    int fd;
    uint16_t port;
};

/* From a port that the kernel chooses; where it chooses by the flow, another one has another end.
 */
struct flow flow_open(void);
void flow_close(struct flow *flow);
void flow_send(const struct flow *flow, uint32_t dest_qp, uint32_t psn);
/* How many packets wait in the socket: all are taken. */
uint32_t flow_count(struct vb_udp *udp);

#endif
