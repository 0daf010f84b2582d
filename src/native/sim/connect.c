// SPDX-License-Identifier: Apache-2.0
#include "sim/connect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/ah.h"
#include "hca/counters.h"
#include "hca/multicast.h"
#include "hca/overdue.h"
#include "hca/qp.h"
#include "hca/text.h"
#include "memory/guard.h"
#include "memory/heap.h"
#include "port/packet.h"
#include "sim/connect_state.h"
#include "transport/engine.h"
#include "transport/replies.h"
#include "transport/transport.h"
#include "wrap/held.h"

/* Address space for tables and rings, as much as a target's addresses allow; pages are touched as
 * objects are made. */
static const size_t SEGMENT_SIZE = (size_t)1 << (sizeof(size_t) > 4 ? 32 : 28);

enum { HOP_LIMIT = 64, PS_IN_NS = 1000, LAST_PACKETS = 16, HOSTS_APART = 255 };

static struct vb_connect *sim_connect_of(const struct vb_qp *qp)
{
    return vb_sim_connect_of(qp->context->adapter);
}

static uint64_t now_ns(const struct vb_connect *connect)
{
    return connect->jack->calls->now(connect->jack) / PS_IN_NS;
}

uint64_t vb_sim_connect_now(const struct vb_connect *connect)
{
    return connect->jack->calls->now(connect->jack);
}

int vb_sim_connect_step(struct vb_connect *connect, uint64_t until)
{
    if (until)
        return connect->jack->calls->step(connect->jack, until);
    connect->jack->calls->polled(connect->jack);
    return 0;
}

/* ---- lists of QPs: those that wait, and those that are held ---------------------------------- */

static void connect_hold(struct vb_connect *connect, struct vb_qp *qp, uint8_t level)
{
    struct vb_connect_place *place = vb_sim_connect_place_of(qp);

    if (place->waits_for_lane)
        return;
    place->waits_for_lane = true;
    place->level = level;
    place->next_held = connect->held;
    connect->held = qp;
    vb_sim_connect_hold(qp);
}

/* Those whose lane is free again; `gone`: also that one. */
static void connect_release_held(struct vb_connect *connect, const struct vb_qp *gone)
{
    struct vb_jack *jack = connect->jack;
    struct vb_qp **at = &connect->held;

    while (*at) {
        struct vb_qp *qp = *at;
        struct vb_connect_place *place = vb_sim_connect_place_of(qp);

        if (qp != gone && jack->calls->is_held_up(jack, place->level)) {
            at = &place->next_held;
            continue;
        }
        *at = place->next_held;
        place->waits_for_lane = false;
        vb_sim_connect_hold(qp);
    }
}

/* Perhaps under the QP's sq_lock: it is looked at in an event of its own. */
static void connect_attend(struct vb_qp *qp)
{
    struct vb_connect *connect = sim_connect_of(qp);
    struct vb_jack *jack = connect->jack;

    if (atomic_exchange(&qp->attended, true))
        return;
    qp->attend_next = connect->attended;
    connect->attended = qp;
    jack->calls->expire_at(jack, jack->calls->now(jack));
}

static void unattend(struct vb_connect *connect, struct vb_qp *gone)
{
    for (struct vb_qp **at = &connect->attended; *at; at = &(*at)->attend_next)
        if (*at == gone) {
            *at = gone->attend_next;
            atomic_store(&gone->attended, false);
            return;
        }
}

/* Datagrams that found the port busy stay. */
static void serve_attended(struct vb_connect *connect)
{
    struct vb_qp *qp = connect->attended, *next;

    connect->attended = NULL;
    for (; qp; qp = next) {
        next = qp->attend_next;
        if (vb_qp_try_flush(qp) && !qp->counted_waiting) {
            atomic_store(&qp->attended, false);
            continue;
        }
        qp->attend_next = connect->attended;
        connect->attended = qp;
    }
}

/* ---- out ------------------------------------------------------------------------------------- */

static void connect_address(struct vb_letter *letter, const struct vb_path *path)
{
    memcpy(letter->sgid, path->sgid, sizeof(letter->sgid));
    memcpy(letter->dgid, path->dgid, sizeof(letter->dgid));
    letter->flow_label = path->flow_label;
    letter->traffic_class = path->traffic_class;
    letter->hop_limit = path->hop_limit;
    letter->level = path->sl;
}

/* Switches send nothing back: the host's own members have it from the adapter, and at once. */
static uint32_t connect_send_to_group(struct vb_connect *connect, const struct vb_letter *letter)
{
    struct vb_arrival arrival = {
        .bytes = letter->bytes,
        .length = letter->length,
        .traffic_class = letter->traffic_class,
        .hop_limit = letter->hop_limit,
        .flow_label = letter->flow_label,
    };
    uint32_t members[VB_GROUP_QPS];

    memcpy(arrival.sgid, letter->sgid, sizeof(arrival.sgid));
    memcpy(arrival.dgid, letter->dgid, sizeof(arrival.dgid));
    if (!letter->damaged && vb_multicast_members(&connect->adapter.self, arrival.dgid, members))
        vb_engine_receive(connect->engine, &arrival, now_ns(connect));
    return connect->jack->calls->send_to_group(connect->jack, letter->dgid);
}

/* What cannot be copied is lost, as on a network. Bytes on the wire, -EFAULT, -ENOMEM. */
static int send_packet(struct vb_connect *connect, const struct vb_wrap_out *out)
{
    const struct vb_packet *packet = out->packet;
    struct vb_jack *jack = connect->jack;
    uint32_t length = packet->header_length + packet->payload_length + packet->pad;
    struct vb_letter *letter = jack->calls->begin(jack, length);

    if (!letter)
        return -ENOMEM;
    connect_address(letter, packet->path);
    letter->payload = packet->payload_length;
    letter->damaged = out->icrc_flip;
    letter->telemetry = connect->telemetry;
    letter->trail = connect->trail;
    letter->leave_at = connect->leave_at;
    if (vb_port_packet_write(packet, letter->bytes) < 0) {
        jack->calls->give_up(jack);
        return -EFAULT;
    }
    if (VB_UNLIKELY(vb_wire_gid_is_multicast(packet->path->dgid)))
        return (int)connect_send_to_group(connect, letter);
    return (int)jack->calls->send(jack, vb_sim_jack_host_of(packet->path->dgid));
}

static int send_wrapped(struct vb_connect *connect, const struct vb_wrap_out *out)
{
    int sent = send_packet(connect, out);

    vb_wrap_sent(&connect->wrap, out, 0, 0, now_ns(connect));
    return sent;
}

uint32_t vb_sim_connect_emit(struct vb_connect *connect, const struct vb_packet *packet, int *error)
{
    struct vb_wrap_out out = {.packet = packet};
    int sent = 0;

    if (VB_LIKELY(!vb_wrap_is_active(&connect->wrap)))
        sent = send_packet(connect, &out);
    else if (vb_wrap_outgoing(&connect->wrap, packet, now_ns(connect), &out))
        sent = send_wrapped(connect, &out);
    if (error)
        *error = sent < 0 ? sent : 0;
    return sent < 0 ? 0 : (uint32_t)sent;
}

/* A packet that could not leave at once keeps its connection from making more of them. */
static void hold_sender(struct vb_connect *connect, const struct vb_packet *packet)
{
    uint8_t level = packet->path->sl;

    if (connect->jack->calls->is_held_up(connect->jack, level))
        connect_hold(connect, vb_sim_connect_sender(packet), level);
}

static void connect_arm(struct vb_connect *connect)
{
    uint64_t due = vb_engine_deadline(connect->engine);

    if (due < UINT64_MAX / PS_IN_NS)
        connect->jack->calls->expire_at(connect->jack, due * PS_IN_NS);
    connect->jack->calls->expire_at(connect->jack, vb_engine_timers_next(&connect->paced));
    due = vb_wrap_deadline(&connect->wrap);
    /* What is due already waits for the port, and not for a time. */
    if (VB_UNLIKELY(due != UINT64_MAX) && due > now_ns(connect))
        connect->jack->calls->expire_at(connect->jack, due * PS_IN_NS);
}

static bool connect_has_more(struct vb_connect *connect)
{
    return vb_engine_ready_first(&connect->engine->replying) ||
           vb_engine_ready_first(&connect->engine->requesting) || connect->held ||
           connect->attended ||
           (vb_wrap_is_active(&connect->wrap) &&
            vb_wrap_deadline(&connect->wrap) <= now_ns(connect));
}

/* What a fault rule has held. */
static bool connect_send_due(struct vb_connect *connect)
{
    struct vb_wrap_out out;

    if (!vb_wrap_is_active(&connect->wrap) ||
        !vb_wrap_due_out(&connect->wrap, now_ns(connect), &out))
        return false;
    send_wrapped(connect, &out);
    return true;
}

static bool connect_send_next(struct vb_connect *connect)
{
    struct vb_packet packet;
    uint32_t bytes;

    if (!vb_engine_next(connect->engine, &packet, now_ns(connect)))
        return false;
    if (VB_UNLIKELY(connect->jack->congestion->kind == VB_CONGESTION_HPCC))
        vb_sim_connect_trace(connect, &packet);
    bytes = vb_sim_connect_emit(connect, &packet, NULL);
    connect->telemetry = VB_LETTER_SILENT;
    hold_sender(connect, &packet);
    if (connect->jack->congestion->kind && bytes)
        vb_sim_connect_pace(connect, &packet, bytes);
    return true;
}

static void pump(struct vb_connect *connect)
{
    struct vb_jack *jack = connect->jack;

    if (connect->held)
        connect_release_held(connect, NULL);
    while (jack->calls->may_send(jack) && (connect_send_due(connect) || connect_send_next(connect)))
        ;
    if (connect_has_more(connect))
        jack->calls->come_back(jack);
    connect_arm(connect);
}

/* ---- what the world calls -------------------------------------------------------------------- */

static void connect_receive(struct vb_connect *connect, const struct vb_arrival *arrival)
{
    const struct vb_counters *counters = vb_engine_counters(connect->engine);
    uint64_t notices = counters->cnp_received;

    vb_engine_receive(connect->engine, arrival, now_ns(connect));
    if (connect->jack->congestion->kind)
        vb_sim_connect_congested(connect, arrival, counters->cnp_received != notices);
}

static void receive_wrapped(struct vb_connect *connect, const struct vb_wrap_in *in)
{
    connect_receive(connect, in->arrival);
    vb_wrap_received(&connect->wrap, in, NULL, now_ns(connect));
}

static void receive_due(struct vb_connect *connect)
{
    struct vb_wrap_in in;

    while (vb_wrap_is_active(&connect->wrap) &&
           vb_wrap_due_in(&connect->wrap, now_ns(connect), &in))
        receive_wrapped(connect, &in);
}

static void connect_arrive(void *argument, const struct vb_arrival *arrival)
{
    static const struct vb_wrap_frame frame;
    struct vb_connect *connect = argument;
    struct vb_wrap_in in;

    if (VB_LIKELY(!vb_wrap_is_active(&connect->wrap)))
        connect_receive(connect, arrival);
    else if (vb_wrap_incoming(&connect->wrap, arrival, &frame, now_ns(connect), &in))
        receive_wrapped(connect, &in);
}

static void drop_damaged(void *argument)
{
    struct vb_connect *connect = argument;

    ++connect->damaged;
}

static void connect_ready(void *argument)
{
    struct vb_connect *connect = argument;

    receive_due(connect);
    if (connect->attended)
        serve_attended(connect);
    pump(connect);
}

static void connect_expire(void *argument)
{
    struct vb_connect *connect = argument;

    vb_engine_expire(connect->engine, now_ns(connect));
    vb_sim_connect_pace_expire(connect);
    connect_ready(connect);
}

void vb_sim_connect_wrapped(struct vb_connect *connect)
{
    connect->jack->calls->expire_at(connect->jack, vb_sim_connect_now(connect));
}

/* ---- a port's calls -------------------------------------------------------------------------- */

/*
 * The low 12 bits are the place in a block of the table (transport/engine.c). The others tell hosts
 * apart, for who reads of them, and are neither the managers' 0 (IBA 3.5.3) nor the groups' 0xfff.
 */
static int connect_number(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num)
{
    uint32_t host = vb_sim_connect_of(adapter)->jack->host, block = index / VB_QPS_PER_SLOT;

    *qp_num = (1 + (host + block * HOSTS_APART) % (VB_SLOTS - 2)) << (24 - VB_SLOT_BITS) |
              index % VB_QPS_PER_SLOT;
    return 0;
}

static VB_COLD int connect_decline_way(struct vb_qp *qp, int error)
{
    unsigned index = qp->attr.ah_attr.grh.sgid_index;

    switch (error) {
    case -EINVAL:
        return vb_decline(qp->context, error,
                          "GID index {0} is empty: a simulated host has the indices 0 to 2", index);
    case -ENETUNREACH:
        return vb_decline(qp->context, error,
                          "the peer's GID is no simulated host's: take the one that the peer's own "
                          "device has");
    case -ELOOP:
        return vb_decline(qp->context, error,
                          "the routes of the simulated fabric lead round, to the peer's host or "
                          "back from it");
    default:
        return vb_decline(qp->context, error,
                          "no route of the simulated fabric leads to the peer's host and back");
    }
}

/* -EINVAL, -ENETUNREACH, and what the world says of the way. */
static int connect_find_way(struct vb_connect *connect, const struct ibv_ah_attr *attr,
                            struct vb_path *path)
{
    uint32_t host = vb_sim_jack_host_of(attr->grh.dgid.raw);
    struct vb_gid source;

    if (!vb_port_addresses_get(connect->adapter.ports[0].addresses, attr->grh.sgid_index, &source))
        return -EINVAL;
    if (host == UINT32_MAX && !vb_wire_gid_is_multicast(attr->grh.dgid.raw))
        return -ENETUNREACH;
    *path = (struct vb_path){
        .flow_label = attr->grh.flow_label & 0xfffff,
        .sgid_index = attr->grh.sgid_index,
        .traffic_class = attr->grh.traffic_class,
        .hop_limit = attr->grh.hop_limit > 1 ? attr->grh.hop_limit : HOP_LIMIT,
        .sl = attr->sl,
        .mtu = connect->jack->mtu,
    };
    memcpy(path->sgid, source.raw, sizeof(path->sgid));
    memcpy(path->dgid, attr->grh.dgid.raw, sizeof(path->dgid));
    return host == UINT32_MAX ? 0 : connect->jack->calls->way(connect->jack, host);
}

static int make_path(struct vb_connect *connect, struct vb_qp *qp, struct vb_path *path)
{
    int error = connect_find_way(connect, &qp->attr.ah_attr, path);

    if (!error && vb_wire_gid_is_multicast(path->dgid))
        error = -ENETUNREACH;
    if (error)
        return connect_decline_way(qp, error);
    path->mtu = (uint16_t)(128 << qp->attr.path_mtu);
    if (path->mtu <= connect->jack->mtu)
        return 0;
    return vb_decline(qp->context, -EMSGSIZE,
                      "path_mtu is {0} bytes and the simulated fabric carries {1}: set a smaller "
                      "one (query_port: active_mtu), or make the world with a larger mtu",
                      path->mtu, connect->jack->mtu);
}

static int join_engine(struct vb_connect *connect, struct vb_qp *qp)
{
    struct vb_path path;
    int error = make_path(connect, qp, &path);

    return error ? error : vb_engine_connect(connect->engine, qp, &path);
}

static int make_place(struct vb_qp *qp)
{
    struct vb_connect_place *made = calloc(1, sizeof(*made));

    if (!made || vb_engine_timer_join(&sim_connect_of(qp)->paced, &made->at_rate, 0)) {
        free(made);
        return -ENOMEM;
    }
    made->qp = qp;
    qp->port_data = made;
    return 0;
}

/* Only datagrams come here. What has no way to its target is lost, as on a network. */
static int connect_execute(struct vb_qp *qp, const struct ibv_send_wr *wr,
                           struct vb_outcome *outcome)
{
    struct vb_connect *connect = sim_connect_of(qp);
    struct vb_jack *jack = connect->jack;
    const struct vb_ah *ah = (const struct vb_ah *)wr->wr.ud.ah;
    struct vb_packet packet;
    struct vb_path path;
    int error = 0;

    if (!jack->calls->may_send(jack) || jack->calls->is_held_up(jack, ah->attr.sl)) {
        qp->wait.reason = VB_WAIT_PEER;
        return -EAGAIN;
    }
    if (connect_find_way(connect, &ah->attr, &path))
        return 0;
    vb_engine_datagram(qp, wr, &path, &packet, outcome);
    if (packet.header_length)
        vb_sim_connect_emit(connect, &packet, &error);
    if (error == -EFAULT)
        outcome->status = IBV_WC_LOC_PROT_ERR;
    if (VB_UNLIKELY(vb_wrap_is_active(&connect->wrap)))
        vb_sim_connect_wrapped(connect);
    return 0;
}

static void connect_kick(struct vb_qp *qp)
{
    struct vb_connect *connect = sim_connect_of(qp);

    vb_engine_attend(connect->engine, qp, now_ns(connect));
    pump(connect);
}

/* By packets: the way that the QP's attributes name now. */
static int connect_move(struct vb_qp *qp)
{
    return join_engine(sim_connect_of(qp), qp);
}

static const struct vb_carrier packets = {
    .kick = connect_kick,
    .note = vb_engine_note,
    .is_loop = vb_engine_is_loop,
    .settle = vb_settled_at_once,
    .quiet = vb_always_quiet,
    .move = connect_move,
};

static const struct vb_carrier datagrams = {
    .execute = connect_execute,
    .settle = vb_settled_at_once,
    .quiet = vb_always_quiet,
};

static int connect_qp(struct vb_qp *qp)
{
    bool connected = vb_qp_connected_type(qp->type);
    int error = qp->port_data ? 0 : make_place(qp);

    if (!error && connected)
        error = connect_move(qp);
    if (error)
        return error;
    vb_qp_set_carrier(qp, connected ? &packets : &datagrams);
    vb_qp_count_poller(qp, true);
    return 0;
}

/* An acknowledgement of what the program has seen; not long READs. */
static void send_owed(struct vb_connect *connect, const struct vb_qp *qp)
{
    struct vb_endpoint *ep = qp->endpoint;
    struct vb_packet packet;

    for (int i = 0; ep && i < LAST_PACKETS && vb_engine_replies_owed(&ep->replies); ++i)
        if (vb_engine_replies_next(ep, &packet))
            vb_sim_connect_emit(connect, &packet, NULL);
}

static void connect_disconnect(struct vb_qp *qp)
{
    struct vb_connect *connect = sim_connect_of(qp);
    struct vb_connect_place *place = vb_sim_connect_place_of(qp);

    send_owed(connect, qp);
    unattend(connect, qp);
    if (place && place->waits_for_lane)
        connect_release_held(connect, qp);
    vb_engine_disconnect(connect->engine, qp);
    vb_qp_set_carrier(qp, &vb_uncarried);
    vb_qp_count_poller(qp, false);
    if (place)
        vb_sim_connect_pace_leave(connect, place);
    free(place);
    qp->port_data = NULL;
}

static void connect_progress(struct vb_cq *cq)
{
    struct vb_jack *jack = vb_sim_connect_of(cq->context->adapter)->jack;

    jack->calls->polled(jack);
}

static void connect_armed(struct vb_cq *cq)
{
    struct vb_jack *jack = vb_sim_connect_of(cq->context->adapter)->jack;

    jack->calls->armed(jack);
}

static void connect_readable(struct vb_context *context, int fd)
{
    struct vb_jack *jack = vb_sim_connect_of(context->adapter)->jack;

    jack->calls->told(jack, fd);
}

static uint64_t connect_now(const struct vb_adapter *adapter)
{
    return now_ns(vb_sim_connect_of(adapter));
}

static int connect_join(struct vb_qp *qp, const uint8_t group[16])
{
    struct vb_jack *jack = sim_connect_of(qp)->jack;
    int error = jack->calls->join(jack, group);

    switch (error) {
    case 0:
        return 0;
    case -EHOSTUNREACH:
        return vb_decline(qp->context, error,
                          "no way of the simulated fabric leads to another member of the group");
    default:
        return vb_decline(qp->context, error,
                          "the simulated fabric has no room for another multicast group");
    }
}

static void connect_leave(struct vb_adapter *adapter, const uint8_t group[16])
{
    struct vb_jack *jack = vb_sim_connect_of(adapter)->jack;

    jack->calls->leave(jack, group);
}

static bool connect_is_own(void *argument, uint8_t port_num, const uint8_t gid[16])
{
    const struct vb_connect *connect = argument;

    return vb_port_addresses_port_has(&connect->adapter, port_num, gid);
}

static const struct vb_host_calls port = {
    .number = connect_number,
    .connect = connect_qp,
    .disconnect = connect_disconnect,
    .attend = connect_attend,
    .progress = connect_progress,
    .join = connect_join,
    .leave = connect_leave,
    .armed = connect_armed,
    .readable = connect_readable,
    .now = connect_now,
};

/* ---- open and close -------------------------------------------------------------------------- */

static int open_addresses(struct vb_connect *connect)
{
    const struct vb_jack *jack = connect->jack;
    struct vb_gid gid[] = {
        {.type = VB_GID_ROCE_V2}, {.type = VB_GID_ROCE_V2}, {.type = VB_GID_ROCE_V2}};

    vb_sim_jack_ipv4(jack->host, gid[0].raw);
    vb_sim_jack_link_local(jack->host, gid[1].raw);
    vb_sim_jack_ipv4(jack->host, gid[2].raw);
    return vb_port_addresses_fixed(gid, sizeof(gid) / sizeof(*gid), jack->mtu,
                                   &connect->adapter.ports[0].addresses);
}

static int connect_open_adapter(struct vb_connect *connect, struct vb_heap *heap)
{
    uint32_t instance = VB_ARM_ANY + 1 + connect->jack->host;
    struct vb_heap *segment;
    int error = vb_memory_heap_create(SEGMENT_SIZE, &segment);

    if (error)
        return error;
    error =
        vb_adapter_create(segment, heap, &port, instance, connect->jack->seed, &connect->adapter);
    if (error)
        vb_memory_heap_destroy(segment);
    return error;
}

static void connect_close_adapter(struct vb_connect *connect)
{
    struct vb_heap *segment = connect->adapter.segment;

    if (connect->adapter.ports[0].addresses)
        vb_port_addresses_close(connect->adapter.ports[0].addresses);
    vb_adapter_destroy(&connect->adapter);
    vb_memory_heap_destroy(segment);
}

static int connect_open_parts(struct vb_connect *connect, struct vb_heap *heap)
{
    bool needs_acks = connect->jack->congestion->kind == VB_CONGESTION_HPCC;
    struct vb_engine_config config = {.burst = 1, .ack_bytes = needs_acks}; /* each: telemetry */
    int error = connect_open_adapter(connect, heap);

    if (error)
        return error;
    error = open_addresses(connect);
    if (!error)
        error = vb_engine_create(&connect->adapter, &config, &connect->engine);
    if (error) {
        connect_close_adapter(connect);
        return error;
    }
    vb_engine_set_own(connect->engine, connect_is_own, connect);
    return 0;
}

int vb_sim_connect_open(struct vb_jack *jack, struct vb_heap *heap, struct vb_connect **connect)
{
    struct vb_connect *made;
    int error;

    if (jack->version != VB_JACK_VERSION)
        return -EPROTO;
    if (jack->plug)
        return -EBUSY;
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->jack = jack;
    made->plug =
        (struct vb_plug){made, connect_arrive, drop_damaged, connect_ready, connect_expire};
    vb_wrap_init(&made->wrap);
    error = connect_open_parts(made, heap);
    if (error) {
        vb_wrap_fini(&made->wrap);
        free(made);
        return error;
    }
    vb_memory_guard_start();
    jack->plug = &made->plug;
    *connect = made;
    return 0;
}

/* What fault rules hold leaves when it is due all the same, as from a host that goes on. */
static void leave_the_rest(struct vb_connect *connect)
{
    struct vb_wrap_out out;

    while (vb_wrap_due_out(&connect->wrap, UINT64_MAX, &out)) {
        connect->leave_at = out.held->due * PS_IN_NS;
        send_wrapped(connect, &out);
    }
}

void vb_sim_connect_close(struct vb_connect *connect)
{
    leave_the_rest(connect);
    connect->jack->plug = NULL;
    vb_memory_guard_stop();
    vb_engine_destroy(connect->engine);
    connect_close_adapter(connect);
    vb_engine_timers_free(&connect->paced);
    vb_wrap_fini(&connect->wrap);
    free(connect);
}

/* ---- questions ------------------------------------------------------------------------------- */

int vb_sim_connect_counters(const struct vb_connect *connect, char *json, size_t size)
{
    const uint64_t *value = (const uint64_t *)(const void *)vb_engine_counters(connect->engine);
    struct vb_text text = {json, size, 0};

    vb_text_add(&text, "{\"engine\":{");
    for (uint32_t i = 0; i < VB_COUNTER_COUNT; ++i)
        vb_text_add(&text, "%s\"%s\":%llu", i ? "," : "", vb_counter_names[i].name,
                    (unsigned long long)value[i]);
    vb_text_add(&text, "},\"port\":{\"drop_icrc\":%llu}}", (unsigned long long)connect->damaged);
    return text.length;
}

int vb_sim_connect_describe(struct vb_connect *connect, const char *device, char *json, size_t size)
{
    struct vb_text text = {json, size, 0};

    vb_text_add(&text, "{\"device\":\"%s\",\"simulated_host\":%u,\"rate\":%llu,\"mtu\":%u,", device,
                connect->jack->host, (unsigned long long)connect->jack->rate, connect->jack->mtu);
    vb_overdue_describe(&connect->adapter, &text);
    vb_text_add(&text, "}");
    return text.length;
}
