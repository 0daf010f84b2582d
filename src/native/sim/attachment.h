// SPDX-License-Identifier: Apache-2.0
/*
 * Where the adapter of a program is plugged into a host of a simulated fabric.
 *
 * The world belongs to the Python binding of the fabric and the adapter to libibverbs; both are in
 * one process, and each has its own copy of this code. So the two call each other by the tables
 * here, and by nothing else. A world has one thread, and with it all that is plugged into it.
 *
 * Times are the world's, in ps. Packets carry their bytes: in a wire that belongs to the packet's
 * number for as long as the world lives, so that a packet that is dropped leaves nothing behind.
 */
#ifndef VB_SIM_ATTACHMENT_H
#define VB_SIM_ATTACHMENT_H

#include <stdbool.h>
#include <stdint.h>

struct vb_arrival;
struct vb_congestion;
struct vb_sim_attachment;
struct vb_sim;
struct vb_world_telemetry;

/* Of HPCC (event/telemetry.h). */
enum vb_sim_telemetry_mode {
    VB_SIM_TELEMETRY_NONE = 0,
    VB_SIM_TELEMETRY_COLLECT, /* switches write theirs */
    VB_SIM_TELEMETRY_RETURN,  /* `telemetry` comes back with it, if it is not NULL */
};

enum { VB_SIM_ATTACHMENT_VERSION = 4 };

struct vb_sim_wire_packet {
    uint8_t sgid[16], dgid[16];
    uint32_t flow_label;
    uint32_t length; /* from the BTH to the last pad byte */
    uint32_t payload;
    uint8_t traffic_class, hop_limit;
    uint8_t level;          /* service level */
    bool damaged;           /* its ICRC is wrong: the adapter that it comes to drops it */
    uint8_t telemetry_mode; /* enum vb_sim_telemetry_mode */
    const struct vb_world_telemetry *telemetry; /* while it is sent */
    uint64_t leave_at; /* the world sends it then, whatever is plugged in; 0: at once */
    uint8_t bytes[];
};

/* The adapter's side. */
struct vb_sim_hca_calls {
    void *argument;
    void (*arrive)(void *argument, const struct vb_arrival *arrival);
    void (*drop_damaged)(void *argument);
    void (*ready)(void *argument);  /* the port may send, or something has arrived */
    void (*expire)(void *argument); /* the time of expire_at has come */
};

struct vb_sim_attachment_calls {
    uint64_t (*now)(const struct vb_sim_attachment *attachment);
    /* Do the tables lead from here to that host, and back? 0, -EHOSTUNREACH, -ELOOP. */
    int (*way)(const struct vb_sim_attachment *attachment, uint32_t host);
    bool (*may_send)(const struct vb_sim_attachment *attachment);
    /* Packets of this service level wait for credits, or for the end of a pause. */
    bool (*is_blocked)(const struct vb_sim_attachment *attachment, uint8_t level);
    /* A packet of so many bytes, to be filled; then one of the other two. NULL: no memory. */
    struct vb_sim_wire_packet *(*begin)(struct vb_sim_attachment *attachment, uint32_t length);
    /* How many bytes it takes on the wire. */
    uint32_t (*send)(struct vb_sim_attachment *attachment, uint32_t host);
    uint32_t (*send_to_group)(struct vb_sim_attachment *attachment, const uint8_t gid[16]);
    void (*discard)(struct vb_sim_attachment *attachment);
    /*
     * Packets for this group come here from now on: the switches' tables are made. -EHOSTUNREACH:
     * not to all members; -ENOMEM: also, there are too many groups.
     */
    int (*join)(struct vb_sim_attachment *attachment, const uint8_t gid[16]);
    void (*leave)(struct vb_sim_attachment *attachment, const uint8_t gid[16]);
    /* `ready` is called when the port may send again. */
    void (*want_ready)(struct vb_sim_attachment *attachment);
    /* `expire` is called then, or earlier if it was asked for earlier; UINT64_MAX: not at all. */
    void (*expire_at)(struct vb_sim_attachment *attachment, uint64_t at);
    /* A program that sleeps on this descriptor has something to read. */
    void (*readable)(struct vb_sim_attachment *attachment, int fd);
    /* The program polled and found nothing: it may be its way to wait (vb_sim_set_patience). */
    void (*polled)(struct vb_sim_attachment *attachment);
    /* It armed a completion queue: its way to wait is another one, if it sleeps then. */
    void (*armed)(struct vb_sim_attachment *attachment);
    /*
     * The next event, if it is not after `until`: 1. 0: it is `until` now. -EDEADLK: there is no
     * event any more, or packets wait for each other for ever. -ENOMEM.
     */
    int (*step)(struct vb_sim_attachment *attachment, uint64_t until);
};

struct vb_sim_attachment {
    uint32_t version;
    uint32_t host;
    uint64_t rate; /* bits per second; 0: nothing is plugged in */
    uint64_t seed; /* of this host's keys */
    uint16_t mtu;
    uint16_t frame; /* bytes of a packet with as much payload on the wire, and of its telemetry */
    uint8_t notice_level; /* service level of congestion notifications */
    const struct vb_congestion *congestion;
    const struct vb_sim_attachment_calls *calls;
    const struct vb_sim_hca_calls *hca_calls; /* the other side's; NULL: nothing is plugged in */
    const struct vb_world_telemetry
        *telemetry; /* while a packet arrives: its telemetry; NULL: none */
};

/* The host's; made when first asked for, and gone with the world. NULL: no memory. */
struct vb_sim_attachment *vb_sim_attach(struct vb_sim *sim, uint32_t host);

/*
 * How many polls of one host in vain, at one instant and without arming, let the next event happen;
 * from then on each of them does. Few where a program has no loop: polling is how time passes for
 * it.
 */
void vb_sim_set_patience(struct vb_sim *sim, uint32_t polls);

/*
 * Until a program is told of something: VB_WORLD_END_EVENTS, also after that many events. Else as
 * vb_world_run, but with VB_WORLD_NEVER the time stays where the last event was.
 */
int vb_sim_advance(struct vb_sim *sim, uint64_t until, uint64_t events);
/* The descriptors that programs were told of since: how many, and at most `room` of them. */
uint32_t vb_sim_readable(const struct vb_sim *sim);
uint32_t vb_sim_take_readable(struct vb_sim *sim, int *fd, uint32_t room);

/* A host's addresses: its number in the last bytes of a GUID, and of 10.0.0.0/8. */
uint64_t vb_sim_host_guid(uint32_t host);
void vb_sim_gid_link_local(uint32_t host, uint8_t gid[16]);
void vb_sim_gid_ipv4(uint32_t host, uint8_t gid[16]);
/* UINT32_MAX: no simulated host's. */
uint32_t vb_sim_gid_host(const uint8_t gid[16]);

#endif
