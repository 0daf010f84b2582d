// SPDX-License-Identifier: Apache-2.0
/*
 * The interface between the HCA of a program (sim/hca.c) and the fabric that it is attached to. The
 * fabric is in the Python binding and the HCA in libibverbs. Both are in one process, each with its
 * own copy of this code, so they share nothing but this header.
 *
 * A port of the HCA is a host of the fabric. Ports have indices from 0 here; verbs count from 1.
 * Times are the fabric's, in ps. A fabric and all that is attached to it use one thread.
 */
#ifndef VB_SIM_ATTACHMENT_H
#define VB_SIM_ATTACHMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/layout.h"
#include "sim/nic.h"

struct vb_sim;
struct vb_sim_attachment;

enum { VB_SIM_ATTACHMENT_VERSION = 7 };

/*
 * The bytes and addresses of a packet. This memory belongs to the index of the packet in the pool,
 * and is freed with the fabric, so a dropped packet leaks nothing.
 */
struct vb_sim_wire_packet {
    uint8_t sgid[16], dgid[16];
    uint32_t flow_label;
    uint32_t length; /* bytes from the BTH to the last pad byte */
    uint32_t payload;
    uint16_t slid; /* of the sending InfiniBand port; 0: Ethernet */
    uint8_t traffic_class, hop_limit;
    uint8_t level;     /* service level */
    bool global;       /* InfiniBand: the packet has a GRH */
    bool damaged;      /* the ICRC is wrong */
    bool traced;       /* it has HPCC's telemetry */
    uint64_t leave_at; /* ps: when the fabric sends it, even without its HCA; 0: at once */
    uint8_t bytes[];
};

/* The other end of a path: its number as a host, and its address (event/packet.h). */
struct vb_sim_peer {
    uint32_t host, address;
};

/* The connection of a program's queue pair to the adapter of its host. */
struct vb_sim_program_qp {
    struct vb_nic_qp nic;
    struct vb_qp *qp;
    struct vb_nic_reaction reaction;
};

/* Calls from the fabric to the HCA; those of struct vb_nic_calls come beside them. */
struct vb_sim_hca_calls {
    void *argument;
    /* A packet arrived; it names the port. */
    void (*arrive)(void *argument, const struct vb_arrival *arrival);
    /* A packet with a wrong ICRC arrived. */
    void (*drop_damaged)(void *argument);
    /* A port is free, or a packet arrived. */
    void (*ready)(void *argument);
    /* The time of expire_at has come. */
    void (*expire)(void *argument);
};

/* Calls from the HCA to the fabric. */
struct vb_sim_attachment_calls {
    uint64_t (*now)(const struct vb_sim_attachment *attachment);
    /*
     * Finds the peer's host by its address, or its address by its host if that is 0, and checks the
     * routes from the port to it and back. 0; -ENETUNREACH: no host has the address; -EHOSTUNREACH;
     * -ELOOP; -EPROTONOSUPPORT: one is Ethernet and the other is InfiniBand.
     */
    int (*route)(const struct vb_sim_attachment *attachment, uint32_t port,
                 struct vb_sim_peer *peer);
    bool (*may_send)(const struct vb_sim_attachment *attachment, uint32_t port);
    /* Packets of this service level wait at the port. */
    bool (*is_blocked)(const struct vb_sim_attachment *attachment, uint32_t port, uint8_t level);
    /* Makes a packet of so many bytes; the HCA fills it and calls one of the next three. NULL: no
     * memory. */
    struct vb_sim_wire_packet *(*begin)(struct vb_sim_attachment *attachment, uint32_t length);
    /* Sends the packet by the port to an address; `sender` as of vb_sim_nic_send. Both return its
     * length on the wire.
     */
    uint32_t (*send)(struct vb_sim_attachment *attachment, uint32_t port, uint32_t address,
                     struct vb_nic_qp *sender);
    uint32_t (*send_to_group)(struct vb_sim_attachment *attachment, uint32_t port,
                              const uint8_t gid[16]);
    void (*discard)(struct vb_sim_attachment *attachment);
    /*
     * Makes the port a member of this group, in the switches' tables, too. -EHOSTUNREACH: the port
     * cannot reach another member; -ENOMEM: also, there are too many groups.
     */
    int (*join)(struct vb_sim_attachment *attachment, uint32_t port, const uint8_t gid[16]);
    /* Removes all ports from the group. */
    void (*leave)(struct vb_sim_attachment *attachment, const uint8_t gid[16]);
    /* Has `ready` called when the port is free, if the HCA or another user `has_more` to send. */
    void (*want_ready)(struct vb_sim_attachment *attachment, uint32_t port, bool has_more);
    /* Connects a queue pair to the port's adapter. NULL: no memory. */
    struct vb_sim_program_qp *(*connect)(struct vb_sim_attachment *attachment, uint32_t port,
                                         const struct vb_nic_calls *nic_calls, struct vb_qp *qp);
    void (*disconnect)(struct vb_sim_attachment *attachment, struct vb_sim_program_qp *qp);
    /* vb_sim_nic_release */
    void (*release)(struct vb_sim_attachment *attachment);
    bool (*ring)(struct vb_nic_qp *qp);
    void (*sent)(struct vb_nic_qp *qp, uint32_t level, uint32_t payload, uint32_t bytes,
                 uint64_t limit);
    bool (*received)(struct vb_nic_qp *qp, const struct vb_arrival *arrival, uint32_t level,
                     const struct vb_world_telemetry *telemetry, bool is_notice);
    /* Has `expire` called then, or earlier if that was asked for before; UINT64_MAX: not at all. */
    void (*expire_at)(struct vb_sim_attachment *attachment, uint64_t at);
    /* This descriptor of the program has become readable. */
    void (*readable)(struct vb_sim_attachment *attachment, int fd);
    /* The program polled an empty completion queue (vb_sim_set_patience). */
    void (*polled)(struct vb_sim_attachment *attachment);
    /* The program armed a completion queue: it will sleep, and does not wait by polling. */
    void (*armed)(struct vb_sim_attachment *attachment);
    /*
     * Handles the next event, if it is not after `until`, and returns 1. 0: the time is `until`
     * now. -EDEADLK: no event is left, or packets are in a deadlock. -ENOMEM.
     */
    int (*step)(struct vb_sim_attachment *attachment, uint64_t until);
};

struct vb_sim_attachment_port {
    uint32_t host;                /* the number of the host in the fabric */
    bool infiniband;              /* the link layer; false: Ethernet */
    uint8_t lmc;                  /* of `lid`: there are 2^lmc */
    uint16_t lid;                 /* the first LID; 0: Ethernet */
    uint16_t frame;               /* bytes on the wire of a packet of an MTU, with telemetry */
    uint16_t pkeys[VB_MAX_PKEYS]; /* as vb_adapter_port.pkeys */
    uint64_t rate;                /* bits per second; 0: the port has no link */
};

struct vb_sim_attachment {
    uint32_t version;
    uint32_t ports;
    struct vb_sim_attachment_port port[VB_MAX_PORTS];
    uint64_t seed; /* of the HCA's keys */
    uint16_t mtu;
    bool reacts; /* one of its ports has congestion control */
    bool traces; /* which is HPCC */
    const struct vb_sim_attachment_calls *calls;
    const struct vb_sim_hca_calls *hca_calls;   /* NULL: no HCA is attached */
    const struct vb_world_telemetry *telemetry; /* of the arriving packet; NULL: none */
};

/*
 * Returns the attachment with these hosts as its ports. The first call makes it, and it is freed
 * with the fabric. Its P_Keys may be changed before the HCA is opened. -EINVAL: no such host, too
 * many hosts; -EBUSY: a host is a port of another attachment; -ENOMEM.
 */
int vb_sim_attach(struct vb_sim *sim, const uint32_t *hosts, uint32_t ports,
                  struct vb_sim_attachment **attachment);

/*
 * Sets after how many empty polls of a program, at one time and without arming, the next event is
 * handled; from then on each empty poll handles an event. Without that no time would pass for a
 * program that waits by polling.
 */
void vb_sim_set_patience(struct vb_sim *sim, uint32_t polls);

/*
 * Called when a program's port joins a multicast group or leaves it. It sets the switches' ports of
 * the group (vb_world_switch_set_group) and names the group. -EHOSTUNREACH: the port cannot reach
 * another member; -ENOMEM: also, there are too many groups. Leaving a group that the port is not in
 * does nothing.
 */
typedef int vb_sim_group_change(void *context, const uint8_t gid[16], uint32_t host, bool joins);
/* Programs can join groups from now on. */
void vb_sim_on_groups(struct vb_sim *sim, vb_sim_group_change *change, void *context);
/*
 * Names group `number`, one of VB_MAX_GROUPS from VB_MAX_GROUPS on, by its GID and a host that is a
 * member; VB_WORLD_NONE: it has no member any more.
 */
void vb_sim_program_group_name(struct vb_sim *sim, uint16_t number, const uint8_t gid[16],
                               uint32_t first);
/*
 * The number of the group of this GID that the host can reach; UINT16_MAX, unknown to switches:
 * none. If it reaches none, a host with one port gets the first group of the GID, since joining
 * that says why it fails.
 */
uint16_t vb_sim_program_group_number(const struct vb_sim *sim, const uint8_t gid[16],
                                     uint32_t host);

/*
 * vb_world_run, which also ends, with VB_WORLD_END_EVENTS, when a descriptor has become readable.
 * With VB_WORLD_NEVER the time stays that of the last event.
 */
int vb_sim_advance(struct vb_sim *sim, uint64_t until, uint64_t events);
/* The number of descriptors that have become readable and were not taken. */
uint32_t vb_sim_readable(const struct vb_sim *sim);
/* Takes at most `room` of them, and returns their number. */
uint32_t vb_sim_take_readable(struct vb_sim *sim, int *fd, uint32_t room);

/*
 * The addresses of a host: its number + 1 is in the last bytes of its GUID, its link-local GID and
 * its IPv4 address in 10.0.0.0/8, and is its LID unless it was given another.
 */
enum {
    VB_SIM_LID_MOST = 0xbfff, /* IBA 4.1.3: the last unicast LID */
    VB_SIM_IPV4_NETWORK = 10,
};
uint64_t vb_sim_host_guid(uint32_t host);
void vb_sim_gid_link_local(uint32_t host, uint8_t gid[16]);
void vb_sim_gid_ipv4(uint32_t host, uint8_t gid[16]);
/* The host with this GID; UINT32_MAX: none. */
uint32_t vb_sim_gid_host(const uint8_t gid[16]);

#endif
