// SPDX-License-Identifier: Apache-2.0
/*
 * The layout of the segment: what an adapter shares with its peers on the host. This room and the
 * direct carrier read and write it, in the segment's process and in its peers.
 *
 * Every process that opens a device owns one adapter and, for it, one sparse shared file, the
 * segment: the tables below and the rings that they point to. A peer on the same host maps the
 * segment and carries its own requests out in it: it takes receive requests, places data and writes
 * completions. Three rules keep that safe when a process dies at any instant:
 *
 *  - An index is published after what it covers (a completion's `seq`, a queue's `posted`).
 *  - A lock in a segment names its holder. When a holder dies, the segment's owner, and nobody
 *    else, repairs what the lock protects and releases it.
 *  - A process holds its own queue pair's `sq_lock` while it touches a peer's memory, so the peer
 *    waits for that lock once to be sure that nobody still uses what it has just withdrawn.
 */
#ifndef VB_HCA_LAYOUT_H
#define VB_HCA_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "hca/biased_lock.h"

#define VB_LINE          64
#define VB_SEGMENT_MAGIC 0x56455242454e4131ull

#ifndef VB_LAYOUT_VERSION /* tests/native/other builds a second one */
#define VB_LAYOUT_VERSION 14u
#endif

enum {
    VB_MAX_QP = 1 << 16,
    VB_MAX_CQ = 1 << 16,
    VB_MAX_SRQ = 1 << 15,
    VB_MR_ENTRIES = 1 << 24,       /* of the table: 24 bits of a key are an index */
    VB_MAX_MR = VB_MR_ENTRIES / 2, /* regions and windows: half of the entries stay free (keys.h) */
    VB_MR_WINDOW = 1 << 16,
    VB_MAX_PD = 1 << 16,
    VB_MAX_AH = 1 << 20,
    VB_MAX_SGE = 32,
    VB_MAX_WR = 1 << 15,
    VB_MAX_CQE = 1 << 22,
    VB_MAX_INLINE = 1024,
    VB_MAX_RD_ATOMIC = 128, /* as Linux soft-RoCE, since its programs ask for that many */
    VB_SLOT_BITS = 12,      /* a QP number is a slot and 12 bits within the slot */
    VB_SLOTS = 1 << VB_SLOT_BITS,
    VB_QPS_PER_SLOT = 1 << 12,
    VB_MAX_SLOTS = VB_MAX_QP / VB_QPS_PER_SLOT,
    VB_EVIDENCE_RECORDS = 1024,
    VB_CQE_INLINE = 28,
    VB_STAGE_SLOTS = 16,
    VB_STAGE_BYTES = 16 << 10,
    VB_MAX_GROUPS = 512,
    VB_GROUP_QPS = 56,
    VB_MAX_PORTS = 2,
    VB_MAX_PKEYS = 32,
};

/*
 * Bits of an entry's `pd` beside the domain's number. With one of them the comparison of domains in
 * vb_mr_check fails, and only then is the kind of the entry looked at, so that plain regions pay
 * nothing for the other kinds. A window has no local key, and a null region no remote key.
 */
#define VB_PD_WINDOW 0x80000000u
#define VB_PD_NULL   0x40000000u
#define VB_PD_LEAVING                                                                              \
    0x20000000u /* being deregistered: only payloads that have arrived are placed */
#define VB_PD_GONE   0x10000000u /* some of its memory was unmapped (gone.h) */
#define VB_PD_NUMBER 0x0000ffffu

/* Bits of an entry's `access` beside IBV_ACCESS_*. */
#define VB_ACCESS_TYPE_2 0x80000000u /* a window of type 2 */
#define VB_ACCESS_MIXED  0x40000000u /* heap memory and other memory, as an implicit region has */
#define VB_ACCESS_MOVED  0x00080000u /* its owner has changed the mapping of its addresses */
#define VB_ACCESS_OWN    (VB_ACCESS_MIXED | VB_ACCESS_MOVED) /* bits that no program may set */

/*
 * A memory region or window, as a key finds it. `key` is 0 while the entry is free, being changed,
 * or a window that is not bound; a peer's SEND with Invalidate sets it to 0 as well.
 */
struct vb_mr_shared {
    _Atomic uint32_t key;
    _Atomic uint32_t pd;
    uint64_t iova;
    uint64_t length;
    uint64_t addr; /* owner's virtual address of the first byte */
    _Atomic uint32_t access;
    uint32_t in_heap;          /* 1: the whole region lies in the owner's heap file */
    uint64_t heap_offset;      /* its offset in that file; with VB_PD_GONE, of its map of pages */
    _Atomic uint32_t last_key; /* the key, also while `key` is 0 */
    uint32_t qp;               /* of a window of type 2: index + 1 of the QP that it is bound to */
    uint32_t epoch;            /* of a window of type 2: `epoch` of that QP when it was bound */
    uint32_t region;           /* of a window: index of the region that it is bound to */
};

/* One completion; `seq` is written last and equals the entry's position + 1. */
struct vb_cqe {
    uint64_t wr_id;
    uint32_t qp; /* index in the owner's QP table */
    uint32_t byte_len;
    uint32_t imm;   /* immediate data in network order, or the invalidated rkey */
    uint32_t extra; /* of a datagram the source QP number; of an error the id of its evidence */
    uint32_t wqe;   /* position of the request in its queue */
    uint8_t status;
    uint8_t opcode; /* enum ibv_wc_opcode */
    uint8_t flags;  /* IBV_WC_* */
    uint8_t kind;   /* enum vb_cqe_kind, which says which member of the union is meant */
    union {
        uint8_t data[VB_CQE_INLINE]; /* VB_CQE_RECV_INLINE: the payload, which poll places */
        uint32_t xrc_target;         /* VB_CQE_RECV_XRC: the number of the target QP */
        struct {                     /* a datagram, whose payload is never inside */
            uint8_t header_type;     /* as in `sl` of mlx5 adapters */
            uint8_t path_bits;       /* of the LID that it came to */
            uint8_t slid[2];         /* the LID that it came from, in network order */
        } datagram;
    };
    _Atomic uint32_t seq;
};

/* Notes in a datagram's completion the LID that it came from, and the path bits of its own. */
static inline void vb_cqe_name_lids(struct vb_cqe *entry, uint32_t slid, uint32_t path_bits)
{
    entry->datagram.path_bits = (uint8_t)path_bits;
    entry->datagram.slid[0] = (uint8_t)(slid >> 8);
    entry->datagram.slid[1] = (uint8_t)slid;
}

enum vb_cqe_kind {
    VB_CQE_SEND = 0,
    VB_CQE_RECV = 1,
    VB_CQE_RECV_INLINE = 2, /* poll copies `data` to the receive request's buffers */
    VB_CQE_RECV_STAGED = 3, /* poll copies the payload from the QP's stage */
    /* From here on `qp` is no index of a QP. */
    VB_CQE_VOID = 4,     /* its QP was destroyed: poll skips it */
    VB_CQE_RECV_XRC = 5, /* `qp` is the SRQ's index */
};

struct vb_cq_shared {
    /* written by the owner at creation: */
    _Alignas(VB_LINE) uint64_t ring;
    uint32_t mask;
    uint32_t channel; /* the serial of its channel; 0: none, so it is never armed */
    uint32_t generation;
    _Atomic uint32_t error; /* overrun: no further entry is accepted */
    uint64_t
        stamps; /* offset of the ring of times (ns), twice as long as `ring`; 0: there is none */
    /* written by producers, under `lock`: */
    _Alignas(VB_LINE) struct vb_biased_lock lock;
    uint32_t tail;
    uint32_t head_seen;
    /* written by the consumer: */
    _Alignas(VB_LINE) _Atomic uint32_t head;
    _Atomic uint32_t placed; /* inline payloads before this position are in memory */
    /* written by all: */
    _Alignas(VB_LINE) _Atomic uint32_t armed; /* enum vb_arm, or the instance of a producer that is
                                                 about to wake the channel */
    _Atomic uint32_t announced;               /* entries before this position had their event */
    _Atomic uint32_t notices; /* enum vb_push: what a producer left for the owner to do */
    _Atomic uint32_t held;    /* moderation: the event comes with so many more; 0, 1: the next */
};

enum vb_arm { VB_ARM_NONE = 0, VB_ARM_SOLICITED = 1, VB_ARM_ANY = 2 };

/* A receive request; `num_sge` elements follow. */
struct vb_recv_wqe {
    uint64_t wr_id;
    uint32_t length; /* the sum over the elements; UINT32_MAX if it is more */
    uint32_t num_sge;
    /*
     * The header's mr_epoch in which its owner has found that a payload of up to `length` bytes may
     * wait for a poll and then go to sge[0].addr, an address of the owner's (vb_mr_allows_waiting).
     * In another epoch, and if this is 0, its keys are looked up.
     */
    _Atomic uint64_t checked;
    struct {
        uint64_t addr;
        uint32_t length;
        uint32_t lkey;
    } sge[];
};

struct vb_qp_shared {
    /* What a peer checks before it acts. The owner writes it; a peer may set `state` to ERR. */
    _Alignas(VB_LINE) _Atomic uint32_t state; /* enum ibv_qp_state */
    uint32_t qp_num;
    uint32_t dest_qp_num;
    uint32_t epoch;       /* counts resets, which void what a peer remembers of the queue */
    uint32_t established; /* 1: the first request has arrived (COMM_EST was raised) */
    uint32_t pd;          /* of an XRC target QP, as recv_cq and srq: of the last request's SRQ */
    uint32_t access;
    uint32_t qkey;
    uint16_t recv_cq;
    uint16_t port; /* index of the port that it uses */
    uint16_t srq;  /* index + 1; 0: none */
    uint16_t pkey; /* the P_Key, from that port's table */
    uint64_t rq_ring;
    uint32_t rq_mask;
    uint8_t rq_stride_log2;
    uint8_t type; /* enum ibv_qp_type */
    uint8_t min_rnr_timer;
    uint8_t max_dest_rd_atomic;
    uint64_t xrcd; /* of an XRC target QP: its domain (xrc.h) */
    /* held by the owner while it carries requests out: */
    _Alignas(VB_LINE) struct vb_biased_lock sq_lock;
    /* and not 0 while the request in hand only wakes who waits for it: until it is 0 again the
     * owner touches no memory of its peer, and then checks keys and states anew. A process that is
     * stopped is mostly stopped there, and must not keep its peer from closing what it has. */
    _Atomic uint32_t only_wakes;
    /* the receive queue, of which the owner writes these: */
    _Alignas(VB_LINE) _Atomic uint32_t rq_posted;
    _Atomic uint32_t rq_polled;
    uint64_t rq_stage; /* offset of VB_STAGE_SLOTS pieces of VB_STAGE_BYTES; 0: there are none */
    /* and of which senders write these; those of a UD QP or of a proxy take turns by the lock: */
    _Alignas(VB_LINE) _Atomic uint32_t rq_lock;
    _Atomic uint32_t rq_taken;
    _Atomic uint64_t srq_inflight; /* the SRQ request in hand (vb_srq_in_hand); 0: none */
    _Atomic uint32_t notices;      /* 1 << enum ibv_event_type: events that are not raised yet */
    _Atomic uint32_t
        failed;        /* id of the evidence, in this segment, of what put it in ERR; 0: none */
    uint32_t srq_life; /* of an XRC target QP: `life` of its SRQ */
};

struct vb_srq_shared {
    _Alignas(VB_LINE) uint64_t wqes;
    uint64_t order; /* offset of the ring of request indices as posted; as `mask`, under `lock` */
    uint32_t mask;
    uint32_t stride_log2;
    uint32_t pd;
    uint32_t recv_cq;         /* this and the next four: of an XRC SRQ */
    _Atomic uint32_t srq_num; /* 0: the entry is free, or of another kind */
    _Atomic uint32_t life;    /* differs for each SRQ that has had this entry */
    uint64_t xrcd;
    uint32_t proxy; /* index + 1 of its proxy (xrc.h); 0: none */
    _Alignas(VB_LINE) _Atomic uint32_t posted;
    _Alignas(VB_LINE) _Atomic uint32_t lock;
    _Atomic uint32_t taken;
    _Atomic uint32_t limit;   /* 0: not armed */
    _Atomic uint32_t notices; /* 1: it fell below the limit, and the event is not raised yet */
};

/*
 * A multicast group and its UD QPs. The owner changes it (multicast.h); a sender copies the members
 * and looks at `turn` before and after.
 */
struct vb_group_shared {
    _Alignas(VB_LINE) _Atomic uint32_t turn; /* odd while it is being changed */
    _Atomic uint32_t count;                  /* of members; 0: the entry is free */
    uint8_t gid[16];
    uint32_t reserved[2];
    _Atomic uint32_t member[VB_GROUP_QPS]; /* indices in the owner's QP table */
};

/* What a failed check found (evidence.h); a completion's vendor_err names the record. */
struct vb_evidence {
    _Atomic uint32_t id;
    uint16_t check; /* enum vb_check */
    uint16_t wr_opcode;
    uint32_t qp_num;
    uint32_t peer_qp_num;
    uint32_t key;
    union {
        struct {             /* a check of a key, of access or of a domain */
            uint32_t access; /* what the region or QP grants */
            uint32_t wanted; /* what the request needs */
            uint32_t pd;
            uint32_t mr_pd;
        };
        struct { /* a request by packets that was not answered (NO_ANSWER, SEQUENCE_RETRIES) */
            uint32_t heard_psn; /* the PSN of what was heard last */
            uint32_t heard_us;  /* the time between that and the end */
            uint32_t not_ready; /* RNR NAKs since the last progress */
            uint32_t beyond;    /* responses behind a missing one since the last progress */
        };
    };
    uint32_t count; /* a number that the check explains (sentences.toml) */
    uint64_t addr;
    uint64_t length;
    uint64_t mr_addr;
    uint64_t mr_length;
    uint64_t microseconds;
    uint32_t psn;
    uint32_t naks;     /* sequence errors since the last answer, by a NAK or by a lost response */
    uint32_t timeouts; /* expired timers since the last answer */
    /* The QP that the record was made for, as it was then: */
    uint8_t side;       /* enum vb_side */
    uint8_t status;     /* enum ibv_wc_status */
    uint8_t next_state; /* enum ibv_qp_state; 0: not filled */
    uint8_t type;       /* enum ibv_qp_type */
    uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
    uint8_t retry_left, rnr_left; /* of a QP whose carrier sends packets */
    uint16_t sq_used, sq_room, rq_used, rq_room;
    uint8_t has_psns;  /* 1: its carrier sends packets, and the fields of packets are filled */
    uint8_t silence;   /* enum vb_silence; with has_psns enum vb_heard */
    uint32_t sent_psn; /* the PSN after the last that was sent; `psn` is the first unanswered */
    uint8_t to_itself; /* 1: the QP is connected to itself */
    uint8_t reserved[11];
};

/* What peers of this host read of an RDMA port, and what they count there. */
struct vb_port_shared {
    uint32_t
        infiniband; /* the link layer; this and the next four are written before a peer maps it */
    uint32_t identity; /* in a live fabric (port/fabric.h), where LID and LMC may change; else 0 */
    uint16_t lid, lmc;
    char netdev[16]; /* of an Ethernet port: its network interface; "": all interfaces */
    _Atomic uint32_t qkey_violations; /* datagrams refused for their Q_Key (qkey_viol_cntr) */
    _Atomic uint32_t pkey_violations; /* packets, for their P_Key (bad_pkey_cntr) */
};

struct vb_segment_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_size;
    uint32_t instance; /* random, above VB_ARM_ANY: names the process as the holder of a lock */
    uint32_t pid;
    uint64_t mr, qp, cq, srq, evidence, group; /* offsets of the tables */
    uint32_t mr_entries;                       /* a power of two */
    _Alignas(VB_LINE) _Atomic uint32_t evidence_next;
    struct vb_port_shared port[VB_MAX_PORTS];
    _Atomic uint32_t
        notices_missed;             /* 1: a peer left a notice at an object and could not name it */
    _Atomic uint32_t events_missed; /* 1: a channel was full; the event is in its CQ's `notices` */
    _Atomic uint32_t mr_mask;       /* of the window: no region ever had an entry beyond it */
    _Atomic uint32_t group_window;  /* no group ever had an entry at or beyond this */
    uint32_t watched; /* 1: the owner hears of changes to its mappings (memory/watch.h) */
    uint32_t device;  /* the number in the device's name, from 0; written before a peer maps it */
    /*
     * Random at first, and one more with each change of a region that has a key: what was found of
     * a region holds as long as this is the same.
     */
    _Atomic uint64_t mr_epoch;
    _Alignas(VB_LINE) _Atomic uint32_t atomic_lock; /* atomics on memory that is not in the heap */
};

_Static_assert(sizeof(struct vb_mr_shared) == VB_LINE, "a key look-up reads one line");
_Static_assert(sizeof(struct vb_cqe) == VB_LINE, "a completion moves as one line");
_Static_assert(sizeof(struct vb_qp_shared) == 4 * VB_LINE, "peers read, write and wait apart");
_Static_assert(sizeof(struct vb_cq_shared) == 4 * VB_LINE, "producers and consumer apart");
_Static_assert(sizeof(struct vb_evidence) == 2 * VB_LINE, "two lines");
_Static_assert(sizeof(struct vb_group_shared) == 4 * VB_LINE, "whole lines");

/* A segment as this process sees it: its own, or a peer's. */
struct vb_view {
    uint8_t *base;
    uint64_t size;
    uint64_t nowhere; /* offset of VB_STAGE_BYTES that mean nothing, for vb_at */
    struct vb_segment_header *header;
    struct vb_mr_shared *mr;
    uint32_t mr_last; /* index of the last entry, beyond which nothing that a peer writes leads */
    struct vb_qp_shared *qp;
    struct vb_cq_shared *cq;
    struct vb_srq_shared *srq;
    struct vb_evidence *evidence;
    struct vb_group_shared *group;
};

/* Are the upper 24 bits of the key those of this entry's keys (keys.h)? */
static inline bool vb_mr_is_named(const struct vb_mr_shared *entry, uint32_t key)
{
    return (atomic_load_explicit(&entry->last_key, memory_order_relaxed) ^ key) >> 8 == 0;
}

/* Finds the entry of a key that was made when the window was smaller than this mask says. */
struct vb_mr_shared *vb_mr_entry_before(const struct vb_view *view, uint32_t key, uint32_t mask);

/*
 * The entry of view->mr that a key names: the lowest of its upper 24 bits are the entry's index, in
 * as many bits as the mask has. For a key that was never given out it is some entry of the window,
 * which has another key, so that guessed keys touch no new pages of the table.
 */
static inline struct vb_mr_shared *vb_mr_entry(const struct vb_view *view, uint32_t key)
{
    uint32_t mask =
        atomic_load_explicit(&view->header->mr_mask, memory_order_relaxed) & view->mr_last;
    struct vb_mr_shared *entry = &view->mr[key >> 8 & mask];

    return mask < VB_MR_WINDOW || vb_mr_is_named(entry, key) ? entry
                                                             : vb_mr_entry_before(view, key, mask);
}

/* To be read before the regions, of which something is found that holds in this epoch. */
static inline uint64_t vb_mr_epoch(const struct vb_view *view)
{
    return atomic_load_explicit(&view->header->mr_epoch, memory_order_acquire);
}

/* A region's entry has changed; before the caller waits for those who have seen it as it was. */
static inline void vb_mr_changed(const struct vb_view *view)
{
    atomic_fetch_add(&view->header->mr_epoch, 1);
}

/* The RDMA port that a QP uses; some port, whatever a peer has written. */
static inline struct vb_port_shared *vb_shared_port(const struct vb_view *view,
                                                    const struct vb_qp_shared *qp)
{
    return &view->header->port[qp->port % VB_MAX_PORTS];
}

/* Counts a violation; the counters have 16 bits and stop at their end (IBA 14.2.5.6). */
static inline void vb_count_violation(_Atomic uint32_t *violations)
{
    uint32_t seen = atomic_load(violations);

    while (seen < UINT16_MAX && !atomic_compare_exchange_weak(violations, &seen, seen + 1))
        ;
}

/* Is `wanted` one of the 2^lmc LIDs of a port whose first LID is `lid`? */
static inline bool vb_lid_is_of(uint32_t lid, uint32_t lmc, uint32_t wanted)
{
    return wanted && (lid ^ wanted) >> (lmc & 7) == 0;
}

/* The number of the QP that it is connected to, for threads that do not hold its sq_lock. */
static inline uint32_t vb_qp_dest(const struct vb_qp_shared *qp)
{
    return __atomic_load_n(&qp->dest_qp_num, __ATOMIC_RELAXED);
}

/* The P_Key of its packets, which those for it must match; also for such threads. */
static inline uint16_t vb_qp_pkey(const struct vb_qp_shared *qp)
{
    return __atomic_load_n(&qp->pkey, __ATOMIC_RELAXED);
}

/*
 * The pointer for an offset that is read from a segment. The segment's owner and all of its peers
 * can write to it, so the offset may be any number. An offset outside of the segment gives a
 * pointer to bytes in it that mean nothing, so that garbage in a segment does no harm outside.
 * `room` is the number of bytes that the caller touches, VB_STAGE_BYTES at most. The caller has
 * aligned the offset. This costs a compare and a conditional move.
 */
static inline void *vb_at(const struct vb_view *view, uint64_t offset, uint64_t room)
{
    return view->base + (offset <= view->size - room ? offset : view->nowhere);
}

/* Entries of the tables, by an index that is read from a segment. */
static inline struct vb_qp_shared *vb_view_qp(const struct vb_view *view, uint32_t index)
{
    return &view->qp[index % VB_MAX_QP];
}

static inline struct vb_cq_shared *vb_view_cq(const struct vb_view *view, uint32_t index)
{
    return &view->cq[index % VB_MAX_CQ];
}

static inline struct vb_srq_shared *vb_view_srq(const struct vb_view *view, uint32_t index)
{
    return &view->srq[index % VB_MAX_SRQ];
}

static inline struct vb_cqe *vb_cqe_at(const struct vb_view *view, const struct vb_cq_shared *cq,
                                       uint32_t position)
{
    uint64_t entry = (uint64_t)(position & cq->mask) * sizeof(struct vb_cqe);

    return vb_at(view, (cq->ring + entry) & -(uint64_t)VB_LINE, sizeof(struct vb_cqe));
}

/* The place of an entry's time, which is valid until as many more as the CQ holds were polled. */
static inline uint64_t *vb_cqe_stamp_at(const struct vb_view *view, const struct vb_cq_shared *cq,
                                        uint32_t position)
{
    uint64_t stamp = (uint64_t)(position & (2 * cq->mask + 1)) * sizeof(uint64_t);

    return vb_at(view, (cq->stamps + stamp) & -sizeof(uint64_t), sizeof(uint64_t));
}

/* The first cache line of a receive request; vb_recv_elements says how many elements follow. */
static inline struct vb_recv_wqe *vb_recv_at(const struct vb_view *view, uint64_t ring,
                                             uint32_t index, uint32_t stride_log2)
{
    uint64_t offset = ring + ((uint64_t)index << stride_log2 % 16);

    return vb_at(view, offset & -(uint64_t)VB_LINE, VB_LINE);
}

static inline struct vb_recv_wqe *vb_rq_wqe(const struct vb_view *view,
                                            const struct vb_qp_shared *qp, uint32_t position)
{
    return vb_recv_at(view, qp->rq_ring, position & qp->rq_mask, qp->rq_stride_log2);
}

/* An element of a receive request, as it was at one instant. */
struct vb_recv_sge {
    uint64_t addr;
    uint32_t length, lkey;
};

static inline struct vb_recv_sge vb_recv_sge(const struct vb_recv_wqe *wqe, uint32_t i)
{
    return (struct vb_recv_sge){
        __atomic_load_n(&wqe->sge[i].addr, __ATOMIC_RELAXED),
        __atomic_load_n(&wqe->sge[i].length, __ATOMIC_RELAXED),
        __atomic_load_n(&wqe->sge[i].lkey, __ATOMIC_RELAXED),
    };
}

/* May a payload of `length` bytes wait for a poll, and then go to the first element's address? */
static inline bool vb_recv_is_checked(const struct vb_view *view, const struct vb_recv_wqe *wqe,
                                      uint64_t length)
{
    return atomic_load_explicit(&wqe->checked, memory_order_relaxed) == vb_mr_epoch(view) &&
           length <= __atomic_load_n(&wqe->sge[0].length, __ATOMIC_RELAXED);
}

/* The number of elements, read once; 0 if it is more than a request or the segment can have. */
static inline uint32_t vb_recv_elements(const struct vb_view *view, const struct vb_recv_wqe *wqe)
{
    uint32_t count = __atomic_load_n(&wqe->num_sge, __ATOMIC_RELAXED);
    uint64_t room = view->size - (uint64_t)((const uint8_t *)wqe - view->base);

    return count <= VB_MAX_SGE && sizeof(*wqe) + count * sizeof(wqe->sge[0]) <= room ? count : 0;
}

/*
 * The stage slot of the receive request at `position`, until that is polled. A sender that cannot
 * reach the buffer by a mapping puts the payload there, and poll copies it.
 */
static inline uint8_t *vb_rq_stage(const struct vb_view *view, const struct vb_qp_shared *qp,
                                   uint32_t position)
{
    return vb_at(view, qp->rq_stage + (uint64_t)(position % VB_STAGE_SLOTS) * VB_STAGE_BYTES,
                 VB_STAGE_BYTES);
}

/* Makes the completion one of an XRC SRQ's receive request, which this target QP has taken. */
static inline void vb_cqe_name_xrc(struct vb_cqe *entry, uint32_t srq, uint32_t target)
{
    entry->qp = srq;
    entry->kind = VB_CQE_RECV_XRC;
    entry->xrc_target = target;
}

/* The protection domain for the keys of the QP's receive requests; an SRQ has its own. */
static inline uint32_t vb_recv_pd(const struct vb_view *view, const struct vb_qp_shared *qp)
{
    uint32_t srq = __atomic_load_n(&qp->srq, __ATOMIC_RELAXED);

    return srq ? vb_view_srq(view, srq - 1)->pd : qp->pd;
}

/*
 * A request that was taken from an SRQ: its index, and the position in the order ring from which it
 * was taken. The index is its own until its completion is polled; the position becomes another
 * request's when the other QPs have taken as many as the SRQ holds.
 */
static inline uint64_t vb_srq_in_hand(uint32_t index, uint32_t position)
{
    return (uint64_t)(index + 1) << 32 | position;
}

static inline uint32_t vb_srq_in_hand_index(uint64_t in_hand)
{
    return (uint32_t)(in_hand >> 32) - 1;
}

static inline struct vb_recv_wqe *vb_srq_wqe(const struct vb_view *view,
                                             const struct vb_srq_shared *srq, uint32_t index)
{
    uint64_t wqes = __atomic_load_n(&srq->wqes, __ATOMIC_ACQUIRE); /* a resize may just set it */

    return vb_recv_at(view, wqes, index, srq->stride_log2);
}

/* The place in the order ring for the index of the request at a position. Under the SRQ's lock. */
static inline uint32_t *vb_srq_order_at(const struct vb_view *view, const struct vb_srq_shared *srq,
                                        uint32_t position)
{
    uint64_t entry = (uint64_t)(position & srq->mask) * sizeof(uint32_t);

    return vb_at(view, (srq->order + entry) & -sizeof(uint32_t), sizeof(uint32_t));
}

#endif
