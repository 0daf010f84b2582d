// SPDX-License-Identifier: Apache-2.0
/*
 * The port of a program that is attached to a host of a live fabric (`verbena run --fabric`). The
 * fabric's process (src/verbena/subnet_process) shares a page with its programs: the state of each
 * host's ports, and the flows, which say where what a program sends arrives. Programs ask the
 * process for flows, and count in them what they send.
 */
#ifndef VB_PORT_FABRIC_H
#define VB_PORT_FABRIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "abi/device.h"
#include "hca/layout.h"
#include "lock/mutex.h"
#include "port/ports.h"

struct vb_adapter_port;

enum { VB_FABRIC_GIDS = 8, VB_FABRIC_SENTENCE = 232, VB_FABRIC_OPCODES = 16 };
enum { VB_FABRIC_METERS = 8 };
#define VB_FABRIC_GROUP UINT32_MAX

/* A host's port, which the process alone writes. src/verbena/subnet_process/port_page.py has the
 * same layout, also of the flows. */
struct vb_fabric_port {
    _Atomic uint32_t generation; /* odd while the record is being written */
    uint32_t identity;           /* unlike that of any other port of any fabric; never 0 */
    uint64_t reserved;
    struct ibv_port_attr attr;
    uint32_t speed; /* ibv_query_port_speed */
    uint16_t pkeys[VB_MAX_PKEYS];
    uint8_t gids[VB_FABRIC_GIDS][16];
    uint8_t rest[52];
};

/*
 * What one QP sends to one address: to which port the tables of the subnet lead now, and what was
 * sent. One thread at a time counts, under the QP's send lock; the process makes packets and words
 * of headers of it.
 */
struct vb_fabric_flow {
    _Alignas(VB_LINE) _Atomic uint32_t reached; /* its identity; 0: lost; VB_FABRIC_GROUP */
    uint32_t members; /* of a group: where the bits of the reached ports begin */
    union {
        struct {
            _Atomic uint32_t loss;    /* the chance that a request is lost, as of a fault rule */
            _Atomic uint32_t limited; /* `meters` has some */
        };
        _Atomic uint64_t hindered; /* 0: neither */
    };
    uint64_t packets[2], payload[2]; /* with 4-byte words of payload; [1]: responses to READs */
    uint64_t requests[VB_FABRIC_OPCODES], lost;   /* those that were lost are among the requests */
    uint64_t waited[2];                           /* ns for links; [1]: of responses to READs */
    uint64_t random;                              /* of vb_random_mix */
    char sentence[VB_FABRIC_SENTENCE];            /* why nothing arrives, without a full stop */
    _Atomic uint32_t meters[2][VB_FABRIC_METERS]; /* on the way there and back, see below */
};

/*
 * One direction of a link whose rate holds for data. Everyone who sends over it reserves time. A
 * flow has the numbers of those on its way, from 1; 0 ends them.
 */
struct vb_fabric_meter {
    _Alignas(VB_LINE) _Atomic uint64_t clear; /* when all reserved time is over, in 1/64 ns */
    _Atomic uint32_t rate;                    /* kbit/s; 0: no limit any more */
};

_Static_assert(sizeof(struct vb_fabric_port) == 5 * VB_LINE, "as in Python");
_Static_assert(sizeof(struct vb_fabric_flow) == 8 * VB_LINE, "as in Python");
_Static_assert(sizeof(struct vb_fabric_meter) == VB_LINE, "as in Python");

struct vb_fabric {
    int calls_fd, news_fd;
    struct vb_mutex mutex; /* one call at a time */
    uint32_t sequence;
    time_t silent_until; /* the process has not answered, and is not asked before this */
    size_t size;
    uint8_t *page;
    struct vb_fabric_port *ports;
    uint32_t port_count;
    uint64_t guid; /* the node's */
    struct vb_fabric_flow *flows;
    const uint8_t *members;
    struct vb_fabric_meter *meters;
    uint32_t meter_count;
};

/* The question for a flow, as the process reads it. Its way is that of the packets of one QP. */
struct vb_fabric_way {
    uint32_t port; /* from 1 */
    uint16_t dlid;
    uint8_t sl, path_bits;
    uint16_t pkey_index;
    uint8_t type;   /* the QP's */
    uint8_t global; /* `dgid` is the address's GRH */
    uint8_t dgid[16];
    uint32_t qp_num, dest_qp_num;
};

/* Attaches this process as VERBENA_FABRIC and VERBENA_HOST say. -errno, with a sentence. */
int vb_port_fabric_open(struct vb_fabric **fabric, char sentence[VB_FABRIC_SENTENCE]);
void vb_port_fabric_close(struct vb_fabric *fabric);
/* In a forked child. */
void vb_port_fabric_abandon(struct vb_fabric *fabric);
/* Asks for the host's ports, and returns what it is told as settings of a device. -errno. */
int vb_port_fabric_look(struct vb_port_settings *device, char sentence[VB_FABRIC_SENTENCE]);

/* Copies a record as it is between two changes. */
void vb_port_fabric_read(const struct vb_fabric_port *record, struct vb_fabric_port *copy);
/* Takes LID, P_Keys and GIDs of an adapter's port from its record. -ENOMEM. */
int vb_port_fabric_update(struct vb_adapter_port *port);

/* Returns a new flow, or NULL: the process does not answer, or has ended. */
struct vb_fabric_flow *vb_port_fabric_ask(struct vb_fabric *fabric,
                                          const struct vb_fabric_way *way);
void vb_port_fabric_release(struct vb_fabric *fabric, const struct vb_fabric_flow *flow);
/* Reads one message of the process: the port, from 1, about which there is news, and the event to
 * raise, or -1. -EAGAIN: there is none; another error: the process has ended, and nothing is
 * reached any more. */
int vb_port_fabric_news(struct vb_fabric *fabric, uint32_t *port, int *event);

/* Does what goes by this flow arrive at the port with this identity? */
static inline bool vb_port_fabric_reaches(const struct vb_fabric *fabric,
                                          const struct vb_fabric_flow *flow, uint32_t identity)
{
    uint32_t reached = flow ? atomic_load_explicit(&flow->reached, memory_order_acquire) : 0;
    uint32_t bit = (identity & 0xffff) - 1;

    if (reached != VB_FABRIC_GROUP)
        return reached && reached == identity;
    return identity && (fabric->members[flow->members + bit / 8] >> bit % 8 & 1);
}

#endif
