// SPDX-License-Identifier: Apache-2.0
/*
 * How the HCA of a program (sim/hca.c) and the fabric that it is attached to call each other. The
 * fabric belongs to the Python binding and the HCA to libibverbs: both are in one process, each
 * with its own copy of this code, so they know of each other what is in this header and nothing
 * else.
 *
 * A port of the HCA is one host of the fabric. Ports have indices from 0 here; verbs count from 1.
 * Times are the fabric's, in ps. A fabric has one thread, and with it all that is attached to it.
 */
#ifndef VB_SIM_ATTACHMENT_H
#define VB_SIM_ATTACHMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/layout.h"

struct vb_arrival;
struct vb_congestion;
struct vb_sim;
struct vb_sim_attachment;
struct vb_world_telemetry;

/* What a packet has to do with HPCC's telemetry (event/telemetry.h). */
enum vb_sim_telemetry_mode {
    VB_SIM_TELEMETRY_NONE = 0,
    VB_SIM_TELEMETRY_COLLECT, /* switches write theirs into the packet's record */
    VB_SIM_TELEMETRY_RETURN, /* the packet brings `telemetry` back to the sender, if there is any */
};

enum { VB_SIM_ATTACHMENT_VERSION = 5 };

/*
 * The bytes of a packet with its addresses. It belongs to the packet's number for as long as the
 * fabric lives, so that a packet that is dropped leaves nothing behind.
 */
struct vb_sim_wire_packet {
    uint8_t sgid[16], dgid[16];
    uint32_t flow_label;
    uint32_t length; /* bytes from the BTH to the last pad byte */
    uint32_t payload;
    uint16_t slid; /* of the sending port, if that is InfiniBand's; 0: Ethernet */
    uint8_t traffic_class, hop_limit;
    uint8_t level;                              /* service level */
    bool global;                                /* InfiniBand: the packet has a GRH */
    bool damaged;                               /* its ICRC is wrong: the receiving HCA drops it */
    uint8_t telemetry_mode;                     /* enum vb_sim_telemetry_mode */
    const struct vb_world_telemetry *telemetry; /* read while the packet is sent */
    uint64_t leave_at; /* the fabric sends it then, even if its HCA is gone; 0: at once */
    uint8_t bytes[];
};

/* What the fabric tells the HCA. */
struct vb_sim_hca_calls {
    void *argument;
    /* A packet came to the port that the arrival names. */
    void (*arrive)(void *argument, const struct vb_arrival *arrival);
    /* A packet came whose ICRC is wrong. */
    void (*drop_damaged)(void *argument);
    /* A port may send again, or a packet came. */
    void (*ready)(void *argument);
    /* The time of expire_at has come. */
    void (*expire)(void *argument);
};

/* What the HCA asks of the fabric. */
struct vb_sim_attachment_calls {
    uint64_t (*now)(const struct vb_sim_attachment *attachment);
    /* Do the tables lead from the port to that host, and back? 0; -EHOSTUNREACH; -ELOOP: they lead
     * in a circle; -EPROTONOSUPPORT: one is Ethernet's and the other is InfiniBand's. */
    int (*route)(const struct vb_sim_attachment *attachment, uint32_t port, uint32_t host);
    bool (*may_send)(const struct vb_sim_attachment *attachment, uint32_t port);
    /* Packets of this service level wait at the port for credits, or for the end of a pause. */
    bool (*is_blocked)(const struct vb_sim_attachment *attachment, uint32_t port, uint8_t level);
    /* A packet of so many bytes: the HCA fills it and calls one of the next three. NULL: no memory.
     */
    struct vb_sim_wire_packet *(*begin)(struct vb_sim_attachment *attachment, uint32_t length);
    /* The packet leaves by the port. Both return how many bytes it takes on the wire. */
    uint32_t (*send)(struct vb_sim_attachment *attachment, uint32_t port, uint32_t host);
    uint32_t (*send_to_group)(struct vb_sim_attachment *attachment, uint32_t port,
                              const uint8_t gid[16]);
    void (*discard)(struct vb_sim_attachment *attachment);
    /*
     * Packets for this group come to the port from now on, and the switches' tables say so.
     * -EHOSTUNREACH: the port cannot reach another member; -ENOMEM: also, there are too many
     * groups.
     */
    int (*join)(struct vb_sim_attachment *attachment, uint32_t port, const uint8_t gid[16]);
    /* No port is a member any more. */
    void (*leave)(struct vb_sim_attachment *attachment, const uint8_t gid[16]);
    /* `ready` is called when the port may send again. */
    void (*want_ready)(struct vb_sim_attachment *attachment, uint32_t port);
    /* `expire` is called then, or earlier if it was asked for earlier; UINT64_MAX: not at all. */
    void (*expire_at)(struct vb_sim_attachment *attachment, uint64_t at);
    /* There is something to read for a program that sleeps on this descriptor. */
    void (*readable)(struct vb_sim_attachment *attachment, int fd);
    /* The program polled and found nothing: polling may be its way to wait (vb_sim_set_patience).
     */
    void (*polled)(struct vb_sim_attachment *attachment);
    /* The program armed a completion queue: it does not wait by polling, if it sleeps then. */
    void (*armed)(struct vb_sim_attachment *attachment);
    /*
     * The next event happens, if it is not after `until`: 1. 0: the time is `until` now. -EDEADLK:
     * no event is left, or packets wait for each other for ever. -ENOMEM.
     */
    int (*step)(struct vb_sim_attachment *attachment, uint64_t until);
};

struct vb_sim_attachment_port {
    uint32_t host;   /* its number in the fabric, which is the port's address */
    bool infiniband; /* the link layer; false: Ethernet */
    uint16_t frame;  /* bytes on the wire of a packet with an MTU of payload, and of its
                        telemetry */
    uint16_t pkeys[VB_MAX_PKEYS]; /* as vb_adapter_port.pkeys */
    uint64_t rate;                /* bits per second; 0: no cable is in the port */
};

struct vb_sim_attachment {
    uint32_t version;
    uint32_t ports;
    struct vb_sim_attachment_port port[VB_MAX_PORTS];
    uint64_t seed; /* of this HCA's keys */
    uint16_t mtu;
    uint8_t notice_level; /* service level of congestion notifications */
    const struct vb_congestion *congestion;
    const struct vb_sim_attachment_calls *calls;
    const struct vb_sim_hca_calls *hca_calls;   /* NULL: no HCA is attached now */
    const struct vb_world_telemetry *telemetry; /* of the packet that arrives; NULL: it has none */
};

/*
 * The attachment whose ports are these hosts: made when first asked for, and gone with the fabric.
 * P_Keys may be changed before the HCA is opened. -EINVAL: no such host, or too many of them, or an
 * InfiniBand host that is beyond the 49,151 unicast LIDs; -EBUSY: one of them is a port of another
 * attachment; -ENOMEM.
 */
int vb_sim_attach(struct vb_sim *sim, const uint32_t *hosts, uint32_t ports,
                  struct vb_sim_attachment **attachment);

/*
 * How many polls in vain of one program, at one instant and without arming, let the next event
 * happen; from then on each of them does. A program without a loop needs few: polling is how time
 * passes for it.
 */
void vb_sim_set_patience(struct vb_sim *sim, uint32_t polls);

/*
 * Events happen until a descriptor has something to read: VB_WORLD_END_EVENTS, also after that many
 * events. Otherwise as vb_world_run, but with VB_WORLD_NEVER the time stays where the last event
 * was.
 */
int vb_sim_advance(struct vb_sim *sim, uint64_t until, uint64_t events);
/* How many descriptors have something to read since they were taken last. */
uint32_t vb_sim_readable(const struct vb_sim *sim);
/* Takes at most `room` of them; how many. */
uint32_t vb_sim_take_readable(struct vb_sim *sim, int *fd, uint32_t room);

/*
 * The addresses of a host. Its number from 1 is its LID, stands in the last bytes of its GUID and
 * of the GID made from that, and in its address in 10.0.0.0/8.
 */
enum { VB_SIM_LID_MOST = 0xbfff }; /* IBA 4.1.3: beyond are multicast LIDs */
uint64_t vb_sim_host_guid(uint32_t host);
void vb_sim_gid_link_local(uint32_t host, uint8_t gid[16]);
void vb_sim_gid_ipv4(uint32_t host, uint8_t gid[16]);
/* The host whose GID this is; UINT32_MAX: none of a simulated fabric. */
uint32_t vb_sim_gid_host(const uint8_t gid[16]);

static inline uint16_t vb_sim_host_lid(uint32_t host)
{
    return (uint16_t)(host + 1);
}

#endif
