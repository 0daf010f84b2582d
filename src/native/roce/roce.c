// SPDX-License-Identifier: Apache-2.0
/*
 * The carrier by RoCE v2 packets: its lock, and what is done under it for those who post, those
 * who poll and the thread. host/carriers.c and host/host.c call it. Nothing here is called with a
 * QP's sq_lock held, but vb_roce_datagram.
 */
#include "roce/roce.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "hca/ah.h"
#include "hca/lost.h"
#include "roce/path.h"
#include "roce/state.h"
#include "wire/opcode.h"

uint64_t vb_roce_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- what is done under the lock ---- */

enum {
    BURSTS = 32,       /* at most in one turn, 4 MB: then what has arrived must be looked at */
    AGAIN_NS = 100000, /* until the next attempt after the system took no more */
};

/* A UD QP's CQs are polled for packets from its first packet on, so that a program pays nothing for
 * it that talks to its own host only. */
static void poll_for_datagrams(struct vb_roce *roce, const struct vb_arrival *arrival)
{
    struct vb_qp *qp;

    if ((arrival->bytes[0] & VB_TRANSPORT_MASK) != VB_TRANSPORT_UD)
        return;
    qp = vb_engine_find(roce->engine, vb_wire_bth_read(arrival->bytes).dest_qp);
    if (qp && !atomic_load_explicit(&qp->verbs->polls_port, memory_order_relaxed))
        vb_qp_count_poller(qp, true);
}

static struct vb_wrap_frame roce_frame_of(struct vb_udp_seen seen)
{
    return (struct vb_wrap_frame){.source_port = seen.source_port, .ip_id = seen.ip_id};
}

static void hand_over(struct vb_roce *roce, const struct vb_arrival *arrival, uint64_t now)
{
    poll_for_datagrams(roce, arrival);
    vb_engine_receive(roce->engine, arrival, now);
}

enum { WHY = 160 };

static void hand_over_wrapped(struct vb_roce *roce, const struct vb_wrap_in *in, uint64_t now)
{
    const struct vb_counters before = *vb_engine_counters(roce->engine);
    char words[WHY];

    hand_over(roce, in->arrival, now);
    vb_wrap_received(&roce->wrap, in,
                     vb_roce_why(roce, &before, in->arrival->bytes[0], words, sizeof(words)), now);
}

static void roce_take(struct vb_roce *roce, const struct vb_arrival *arrival,
                      const struct vb_wrap_frame *frame, uint64_t now)
{
    struct vb_wrap_in in;

    if (vb_wrap_incoming(&roce->wrap, arrival, frame, now, &in))
        hand_over_wrapped(roce, &in, now);
}

static void roce_take_due(struct vb_roce *roce, uint64_t now)
{
    struct vb_wrap_in in;

    while (vb_wrap_due_in(&roce->wrap, now, &in))
        hand_over_wrapped(roce, &in, now);
}

static VB_COLD void take_wrapped(struct vb_roce *roce, const struct vb_arrival *arrival,
                                 uint64_t now)
{
    struct vb_wrap_frame frame = roce_frame_of(vb_roce_udp_last(roce->udp));

    roce_take(roce, arrival, &frame, now);
    roce_take_due(roce, now);
}

bool vb_roce_receive(struct vb_roce *roce, uint64_t now)
{
    struct vb_arrival arrival;

    if (!vb_roce_udp_receive(roce->udp))
        return false;
    while (vb_roce_udp_next(roce->udp, &arrival)) {
        if (VB_UNLIKELY(!vb_roce_reuseport_takes(roce->reuseport, &arrival, now)))
            continue;
        if (VB_LIKELY(!vb_wrap_is_active(&roce->wrap)))
            hand_over(roce, &arrival, now);
        else
            take_wrapped(roce, &arrival, now);
    }
    return true;
}

/* vb_udp_config.refused: a datagram with a wrong ICRC. */
static void roce_refused(void *argument, const struct vb_arrival *arrival, struct vb_udp_seen seen)
{
    struct vb_roce *roce = argument;
    struct vb_wrap_frame frame = roce_frame_of(seen);

    frame.icrc = arrival->bytes + arrival->length;
    vb_wrap_refused(&roce->wrap, arrival, &frame, "dropped: the ICRC is wrong", vb_roce_now());
    if (arrival->doubted)
        vb_engine_receive(roce->engine, arrival, vb_roce_now());
}

/* A packet that the wrapper holds is flushed at once, as its bytes are the wrapper's afterwards. */
static void stage(struct vb_roce *roce, const struct vb_wrap_out *out, uint64_t now)
{
    struct vb_udp_seen seen = vb_roce_udp_stage(roce->udp, out->packet);

    if (out->icrc_flip)
        vb_roce_udp_damage_icrc(roce->udp, out->icrc_flip);
    if (out->held)
        vb_roce_udp_flush(roce->udp);
    vb_wrap_sent(&roce->wrap, out, seen.source_port, seen.ip_id, now);
}

static void stage_due(struct vb_roce *roce, uint64_t now)
{
    struct vb_wrap_out out;

    while (vb_roce_udp_has_room(roce->udp) && vb_wrap_due_out(&roce->wrap, now, &out))
        stage(roce, &out, now);
}

/*
 * Sends what the engine has ready, as much as one flush takes. True: there may be more; false:
 * there is none, or the system takes no more for now (`again`).
 */
static bool send_burst(struct vb_roce *roce, uint64_t now)
{
    enum vb_next next = VB_NEXT_MORE;
    struct vb_packet packet;
    struct vb_wrap_out out;
    bool more;

    stage_due(roce, now);
    while (next == VB_NEXT_MORE && vb_roce_udp_has_room(roce->udp)) {
        next = vb_engine_next(roce->engine, &packet, now);
        if (next != VB_NEXT_NONE && vb_wrap_outgoing(&roce->wrap, &packet, now, &out))
            stage(roce, &out, now);
        stage_due(roce, now);
    }
    more = next == VB_NEXT_MORE || !vb_roce_udp_has_room(roce->udp);
    if (vb_roce_udp_flush(roce->udp) == 0)
        return more;
    roce->again = now + AGAIN_NS;
    return false;
}

/* What is due at the engine is done; true if something was. */
static bool expire_due(struct vb_roce *roce, uint64_t now)
{
    bool due = vb_engine_deadline(roce->engine) <= now;

    if (due)
        vb_engine_expire(roce->engine, now);
    return due;
}

/*
 * One pass over the engine sends all that is ready. Another one follows only where the batch was
 * full, or where sending made something due: UC requests complete once their packets have left.
 */
void vb_roce_transmit(struct vb_roce *roce, uint64_t now)
{
    bool more = true;

    roce_take_due(roce, now);
    vb_roce_udp_expire(roce->udp, now);
    roce->again = UINT64_MAX;
    expire_due(roce, now);
    for (int i = 0; i < BURSTS && more; ++i) {
        more = send_burst(roce, now);
        more |= expire_due(roce, now) && roce->again == UINT64_MAX;
    }
    if (more)
        roce->again = now;
}

static void roce_deliver(void *argument, const struct vb_arrival *arrival, uint64_t now)
{
    struct vb_roce *roce = argument;

    roce_take(roce, arrival, &(struct vb_wrap_frame){.source_port = VB_ROCE_PORT}, now);
}

/* ---- the lock ---- */

static void serve_doorbells(struct vb_roce *roce)
{
    uint64_t now = vb_roce_now();

    atomic_store(&roce->doorbell, false);
    for (uint32_t word = 0; word < VB_DOORBELL_WORDS; ++word) {
        uint64_t bits = atomic_load_explicit(&roce->doorbells[word], memory_order_relaxed);

        if (!bits)
            continue;
        for (bits = atomic_exchange(&roce->doorbells[word], 0); bits; bits &= bits - 1) {
            uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(bits);
            struct vb_qp *qp = roce->config.adapter->qps[index];

            if (qp && qp->endpoint)
                vb_engine_attend(roce->engine, qp, now);
        }
    }
    vb_roce_transmit(roce, now);
}

void vb_roce_enter(struct vb_roce *roce)
{
    atomic_fetch_add(&roce->queued, 1);
    vb_lock_take(&roce->lock);
    atomic_fetch_sub(&roce->queued, 1);
}

bool vb_roce_try_enter(struct vb_roce *roce)
{
    return vb_lock_try(&roce->lock);
}

static uint64_t roce_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t roce_earliest(struct vb_roce *roce)
{
    uint64_t at = roce_earlier(roce->again, vb_engine_deadline(roce->engine));

    at = roce_earlier(at, vb_roce_reuseport_deadline(roce->reuseport));
    at = roce_earlier(at, vb_roce_udp_deadline(roce->udp));
    return roce_earlier(at, vb_wrap_deadline(&roce->wrap));
}

/* A thread that found the lock taken has set `doorbell` before this reads it. */
static bool release(struct vb_roce *roce)
{
    vb_lock_release(&roce->lock);
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load(&roce->doorbell);
}

void vb_roce_leave(struct vb_roce *roce)
{
    do {
        if (atomic_load(&roce->doorbell))
            serve_doorbells(roce);
        roce->due = roce_earliest(roce);
        vb_roce_thread_wake_at(roce, roce->due);
    } while (release(roce) && vb_roce_try_enter(roce));
}

/* Where nothing was done under the lock that could have moved a deadline. */
static void leave_unchanged(struct vb_roce *roce)
{
    if (release(roce) && vb_roce_try_enter(roce))
        vb_roce_leave(roce);
}

/* ---- a carrier's calls ---- */

enum {
    DEFER_ABOVE = 8,    /* requests under way: a program that posts so many posts more, or polls */
    DEFER_AT_MOST = 32, /* requests that wait to be sent together */
    DEFER_NS = 100000,  /* until they are sent if the program does neither */
};

/* May the new request wait for others, to leave with them in one system call? */
static bool may_defer(const struct vb_qp *qp)
{
    uint32_t under_way = qp->sq_posted - __atomic_load_n(&qp->sq_next, __ATOMIC_RELAXED);

    return under_way > DEFER_ABOVE && qp->sq_posted % DEFER_AT_MOST != 0;
}

/* A request was posted: what a poll has held back leaves with it, and after it. */
static void transmit_answer(struct vb_roce *roce, uint64_t now)
{
    if (roce->held_back)
        vb_engine_answer_first(roce->engine);
    roce->held_back = false;
    vb_roce_transmit(roce, now);
}

void vb_roce_doorbell(struct vb_roce *roce, struct vb_qp *qp)
{
    if (vb_roce_try_enter(roce)) {
        uint64_t now = vb_roce_now();

        vb_engine_attend(roce->engine, qp, now);
        if (!may_defer(qp))
            transmit_answer(roce, now);
        else if (roce->again > now + DEFER_NS)
            roce->again = now + DEFER_NS;
        vb_roce_leave(roce);
        return;
    }
    atomic_fetch_or(&roce->doorbells[qp->index / 64], 1ull << qp->index % 64);
    atomic_store(&roce->doorbell, true);
    if (vb_roce_try_enter(roce))
        vb_roce_leave(roce);
}

void vb_roce_progress(struct vb_roce *roce)
{
    uint64_t now;
    bool came;

    vb_roce_polling_count(&roce->polling);
    if (atomic_load_explicit(&roce->queued, memory_order_relaxed) || !vb_roce_try_enter(roce))
        return;
    now = vb_roce_now();
    came = vb_roce_receive(roce, now);
    if (!came && !roce->held_back && now < roce->due && !vb_wrap_is_active(&roce->wrap)) {
        leave_unchanged(roce);
        return;
    }
    /*
     * A program that has just received will answer, and the acknowledgement leaves with the answer
     * in one system call; or it polls again. If it does neither, the thread's next look sends it.
     * While the thread waits for datagrams there is no such look, so nothing is held back.
     */
    roce->held_back = came && !roce->held_back && vb_roce_polling_is_unwatched(&roce->polling);
    if (!roce->held_back)
        vb_roce_transmit(roce, now);
    vb_roce_leave(roce);
}

enum { ARRIVED_MOST = 64 }; /* batches, so that a flood does not hold the caller */

void vb_roce_take_arrived(struct vb_roce *roce)
{
    bool came = true;
    int before = errno; /* a call of the program's own that succeeds leaves it */

    vb_roce_enter(roce);
    vb_roce_reuseport_serve(roce->reuseport, vb_roce_now()); /* what others got for this process */
    for (int i = 0; i < ARRIVED_MOST && came; ++i) {
        came = vb_roce_receive(roce, vb_roce_now());
        vb_roce_transmit(roce, vb_roce_now());
        if (i == 0) /* what was held back may be for this process, and is there now */
            came = true;
    }
    vb_roce_leave(roce);
    errno = before;
}

void vb_roce_send_held_back(struct vb_roce *roce)
{
    if (!vb_roce_try_enter(roce)) {
        atomic_store(&roce->doorbell, true); /* the lock's holder transmits before it releases it */
        if (!vb_roce_try_enter(roce))
            return;
    } else if (roce->held_back || roce->again != UINT64_MAX) {
        vb_roce_transmit(roce, vb_roce_now());
    }
    roce->held_back = false;
    roce->away_until = 0;
    vb_roce_leave(roce);
}

void vb_roce_armed(struct vb_roce *roce)
{
    if (vb_roce_polling_arm(&roce->polling))
        vb_roce_thread_watch(roce);
    vb_roce_send_held_back(roce); /* no poll may follow */
}

void vb_roce_settle(struct vb_roce *roce)
{
    vb_roce_enter(roce);
    vb_roce_leave(roce);
}

bool vb_roce_quiet(struct vb_roce *roce)
{
    if (!vb_roce_try_enter(roce))
        return false;
    vb_roce_leave(roce);
    return true;
}

static VB_COLD int roce_decline_way(struct vb_qp *qp, int error)
{
    unsigned index = qp->verbs->attr.ah_attr.grh.sgid_index;
    const union ibv_gid *peer = &qp->verbs->attr.ah_attr.grh.dgid;
    uint64_t high = be64toh(peer->global.subnet_prefix), low = be64toh(peer->global.interface_id);

    if (error == -EINVAL)
        return vb_decline(
            qp->context, error,
            "GID index {0} names no RoCE v2 GID of this host: `verbena devices` lists "
            "them",
            index);
    if (!high && !low)
        return vb_decline(qp->context, error,
                          "the peer's GID is ::, which is no address: the peer chose a GID index "
                          "that is empty there, or told none; `verbena devices` on its host lists "
                          "those in use");
    if (error == -EMFILE || error == -ENFILE)
        return vb_decline(
            qp->context, error,
            "the way to the peer's GID {0g} cannot be looked up: this process, or the "
            "system, has too many open files; raise `ulimit -n`, or fs.file-max",
            high, low);
    if (!vb_port_addresses_active(vb_qp_port(qp)->addresses))
        return vb_decline(qp->context, error,
                          "no route leads from GID index {0} to the peer's GID {1g}: no interface "
                          "of this host is up, so it has no address; ip link set lo up, or that of "
                          "an adapter",
                          index, high, low);
    return vb_decline(qp->context, error,
                      "no route leads from GID index {0} to the peer's GID {1g}: 0, 2 and up are "
                      "addresses of this host's interfaces; choose one that reaches the peer",
                      index, high, low);
}

static int way_to(struct vb_roce *roce, struct vb_qp *qp, struct vb_path *path)
{
    uint32_t interface;
    uint16_t route_mtu = 0; /* gcc 12 does not see that vb_port_route() writes it */
    int error = vb_roce_path_make(roce, qp, &qp->verbs->attr.ah_attr, qp->shared->dest_qp_num, path,
                                  &interface);

    if (!error)
        error = vb_port_route(path->sgid, path->dgid, interface, &route_mtu);
    if (error)
        return roce_decline_way(qp, error);
    path->mtu = (uint16_t)(128 << qp->verbs->attr.path_mtu);
    if (path->mtu > route_mtu)
        return vb_decline(
            qp->context, -EMSGSIZE,
            "path_mtu is {0} bytes and the interface towards the peer carries {1}: "
            "set a smaller one (query_port: active_mtu), or raise the interface's MTU",
            path->mtu, route_mtu);
    return 0;
}

enum { ECN_FIELD = 3, ECT_0 = 2 };

/* Packets of reliable QPs, which react to marks, are declared ECN-capable (RFC 3168). */
static void allow_marks(const struct vb_qp *qp, struct vb_path *path)
{
    if (qp->type != IBV_QPT_UC && !(path->traffic_class & ECN_FIELD))
        path->traffic_class |= ECT_0;
}

int vb_roce_connect(struct vb_roce *roce, struct vb_qp *qp)
{
    struct vb_path path;
    int error;

    if (!vb_qp_connected_type(qp->type))
        return 0; /* see poll_for_datagrams */
    error = way_to(roce, qp, &path);
    if (error)
        return error;
    allow_marks(qp, &path);
    vb_roce_enter(roce);
    error = vb_engine_connect(roce->engine, qp, &path);
    vb_roce_leave(roce);
    if (!error)
        vb_qp_count_poller(qp, true);
    return error;
}

void vb_roce_disconnect(struct vb_roce *roce, struct vb_qp *qp)
{
    vb_roce_enter(roce);
    vb_roce_transmit(roce, vb_roce_now()); /* an acknowledgement may have been held back */
    vb_engine_disconnect(roce->engine, qp);
    vb_roce_udp_forget(roce->udp, qp->number);
    atomic_fetch_and(&roce->doorbells[qp->index / 64], ~(1ull << qp->index % 64));
    vb_roce_leave(roce);
    vb_qp_count_poller(qp, false);
}

/* ---- datagrams ---- */

enum { SEND_TRIES = 10, SEND_WAIT_MS = 1 };

/* -EAGAIN says that the sender's own queue is full, so it is tried again; a datagram that fails
 * otherwise is lost, as in a network. */
static int send_datagram(struct vb_roce *roce, const struct vb_packet *packet)
{
    int error = vb_roce_udp_send(roce->udp, packet);

    for (int i = 0; i < SEND_TRIES && error == -EAGAIN; ++i) {
        poll(NULL, 0, SEND_WAIT_MS);
        error = vb_roce_udp_send(roce->udp, packet);
    }
    return error;
}

/* Under an sq_lock: the carrier's lock must not be taken, so the thread is told what fault rules
 * hold. */
static int pass_datagram(struct vb_roce *roce, const struct vb_packet *packet)
{
    uint64_t now = vb_wrap_is_active(&roce->wrap) ? vb_roce_now() : 0;
    struct vb_wrap_out out;
    int error = 0;

    if (vb_wrap_outgoing(&roce->wrap, packet, now, &out)) {
        error = out.icrc_flip ? 0 : send_datagram(roce, out.packet);
        vb_wrap_sent(&roce->wrap, &out, out.packet->path->source_port, 0, now);
    }
    if (vb_wrap_deadline(&roce->wrap) != UINT64_MAX)
        vb_roce_wrapped(roce);
    return error;
}

/* The datagram is lost. One to a group still reaches this host's members without a packet, unless
 * they get it by the packet as well (`loop`). */
static VB_COLD void goes_nowhere(const struct vb_roce *roce, struct vb_qp *qp,
                                 const struct ibv_send_wr *wr, const struct ibv_ah_attr *ah)
{
    if (roce->config.loop || !vb_wire_gid_is_multicast(ah->grh.dgid.raw))
        vb_lost_log(qp, &(struct vb_lost){.cause = VB_LOST_SOURCE,
                                          .from = qp->number,
                                          .to = wr->wr.ud.remote_qpn,
                                          .value = ah->grh.sgid_index});
}

int vb_roce_datagram(struct vb_roce *roce, struct vb_qp *qp, const struct ibv_send_wr *wr,
                     struct vb_outcome *outcome)
{
    const struct vb_ah *ah = (const struct vb_ah *)wr->wr.ud.ah;
    struct vb_packet packet;
    struct vb_path path;
    uint32_t interface;

    if (vb_roce_path_make(roce, qp, &ah->attr, wr->wr.ud.remote_qpn, &path, &interface)) {
        goes_nowhere(roce, qp, wr, &ah->attr);
        return 0;
    }
    vb_qp_count_poller(qp, true);
    path.mtu = vb_port_addresses_mtu(vb_qp_port(qp)->addresses, path.sgid_index);
    vb_engine_datagram(qp, wr, &path, &packet, outcome);
    if (packet.header_length && pass_datagram(roce, &packet) == -EFAULT)
        outcome->status = IBV_WC_LOC_PROT_ERR;
    return 0;
}

struct vb_wrap *vb_roce_wrap(struct vb_roce *roce)
{
    return &roce->wrap;
}

/* The thread takes a turn, which sets its timer. */
void vb_roce_wrapped(struct vb_roce *roce)
{
    atomic_store(&roce->polling.unwatched, true);
    eventfd_write(roce->wake_fd, 1);
}

/* ---- open and close ---- */

static uint32_t roce_interface_of(void *argument, const struct vb_path *path)
{
    const struct vb_roce *roce = argument;
    const struct vb_adapter_port *port = vb_adapter_port(roce->config.adapter, path->port);
    struct vb_gid gid;

    return port && vb_port_addresses_get(port->addresses, path->sgid_index, &gid) ? gid.ndev_ifindex
                                                                                  : 0;
}

static int open_udp(struct vb_roce *roce)
{
    struct vb_udp_config config = {.port = roce->config.port,
                                   .without = roce->config.without,
                                   .loop = roce->config.loop,
                                   .prepare = vb_roce_reuseport_prepare,
                                   .clock = vb_roce_now,
                                   .refused = roce_refused,
                                   .interface = roce_interface_of,
                                   .argument = roce};

    return vb_roce_udp_open(&config, &roce->udp);
}

/* vb_reuseport_config.met */
static void roce_met(void *argument)
{
    const struct vb_roce *roce = argument;

    vb_roce_udp_share(roce->udp);
}

static int open_reuseport(struct vb_roce *roce)
{
    struct vb_reuseport_config config = {.group = -1,
                                         .port = roce->config.port,
                                         .deliver = roce_deliver,
                                         .met = roce_met,
                                         .argument = roce};

    if (getrandom(&config.instance, sizeof(config.instance), 0) != sizeof(config.instance))
        return -EIO;
    return vb_roce_reuseport_open(&config, &roce->reuseport);
}

static bool roce_is_own(void *argument, uint8_t port_num, const uint8_t gid[16])
{
    const struct vb_roce *roce = argument;

    return vb_port_addresses_port_has(roce->config.adapter, port_num, gid);
}

/* From open_udp on the socket gets packets of other processes, which vb_roce_withdraw passes on. */
static int roce_open_parts(struct vb_roce *roce)
{
    int error;

    roce->config.engine.adapts = true; /* the network's speed is not known */
    error = vb_engine_create(roce->config.adapter, &roce->config.engine, &roce->engine);

    if (!error)
        vb_engine_set_own(roce->engine, roce_is_own, roce);
    if (!error && roce->config.fault)
        error = vb_wrap_set_fault(&roce->wrap, roce->config.fault, NULL, 0);
    if (!error && roce->config.capture)
        error = vb_wrap_set_capture(&roce->wrap, roce->config.capture);
    if (!error)
        error = open_reuseport(roce);
    if (!error)
        error = open_udp(roce);
    if (error)
        return error;
    vb_roce_reuseport_set_group(roce->reuseport, vb_roce_udp_fd(roce->udp));
    return vb_roce_thread_start(roce);
}

/* The socket leaves its group before the others are told. */
static void roce_close_parts(struct vb_roce *roce)
{
    if (roce->udp)
        vb_roce_udp_close(roce->udp);
    if (roce->reuseport)
        vb_roce_reuseport_close(roce->reuseport);
    if (roce->engine)
        vb_engine_destroy(roce->engine);
    vb_lock_destroy(&roce->lock);
    vb_wrap_fini(&roce->wrap);
    free(roce);
}

int vb_roce_open(const struct vb_roce_config *config, struct vb_roce **roce)
{
    struct vb_roce *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    made->config = *config;
    made->timer = made->again = UINT64_MAX;
    vb_lock_init(&made->lock, VB_RANK_ROCE);
    vb_roce_polling_init(&made->polling);
    vb_wrap_init(&made->wrap);
    error = roce_open_parts(made);
    if (error) {
        if (made->udp)
            vb_roce_withdraw(made);
        roce_close_parts(made);
        return error;
    }
    *roce = made;
    return 0;
}

void vb_roce_close(struct vb_roce *roce)
{
    vb_roce_flush(roce);
    vb_roce_thread_stop(roce);
    vb_roce_log_refusals(roce, UINT64_MAX); /* the last ones */
    vb_roce_withdraw(roce);
    roce_close_parts(roce);
}

void vb_roce_abandon(struct vb_roce *roce)
{
    vb_roce_thread_abandon(roce);
    vb_roce_udp_abandon(roce->udp);
    vb_roce_reuseport_abandon(roce->reuseport);
}

int vb_roce_add_slot(struct vb_roce *roce, uint32_t slot)
{
    int error;

    vb_roce_enter(roce);
    error = vb_roce_reuseport_add_slot(roce->reuseport, slot, vb_roce_now());
    vb_roce_leave(roce);
    return error;
}

struct vb_engine *vb_roce_engine(struct vb_roce *roce)
{
    return roce->engine;
}

struct vb_udp *vb_roce_udp(struct vb_roce *roce)
{
    return roce->udp;
}

uint64_t vb_roce_wakeups(const struct vb_roce *roce)
{
    return atomic_load_explicit(&roce->wakeups, memory_order_relaxed);
}
