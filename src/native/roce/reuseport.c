// SPDX-License-Identifier: Apache-2.0
/*
 * Finds out which index each process's socket has in the reuseport group, and attaches the program
 * that follows from it (reuseport.h describes the protocol). roce.c and thread.c call it under the
 * port's lock.
 */
#include "roce/reuseport.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "memory/descriptor.h"
#include "port/gid.h"
#include "roce/bpf.h"
#include "roce/udp.h"

enum {
    WINDOW = 8,       /* indices that are asked for at once */
    TRIES = 3,        /* how often each is asked for */
    ANSWER_MS = 20,   /* how long an answer is waited for */
    ASKED_AT_END = 3, /* members that are asked for a rebuild: one of them may be stopped */
    PAUSE_MS = 2, /* between rebuilds; doubled up to LONGEST_MS after each that changed nothing */
    LONGEST_MS = 1000,
    NAME_MS = 2, /* between attempts to get the maintainer's name, for PATIENCE_MS */
    PATIENCE_MS = 200,
    VERSION = 1,
    OPCODE = 0xfe, /* a BTH opcode of those for manufacturers */
};

static const uint32_t magic = 0x56425354;
static const uint64_t never = UINT64_MAX;

enum kind { QUESTION = 1, REQUEST = 2 };

/* What follows the BTH in a packet to VB_PROBE_QPN + i. */
struct question {
    uint32_t magic;
    uint16_t version;
    uint16_t kind; /* QUESTION: who are you? REQUEST: rebuild the program */
    uint64_t nonce;
    uint32_t index;
    uint16_t answer_to; /* a UDP port on loopback */
    uint16_t reserved;
};

struct answer {
    uint64_t nonce;
    uint64_t instance;
    uint32_t index;
    uint32_t slot_count;
    uint16_t slots[VB_MAX_SLOTS];
};

struct member {
    bool known;
    struct answer answer;
};

enum phase { REST, ASKING };

struct vb_reuseport {
    struct vb_reuseport_config config;
    struct vb_forward *forward;
    int epoll_fd, probe_fd;
    uint16_t probe_port;
    uint32_t slot_count;
    uint16_t slots[VB_MAX_SLOTS];

    enum phase phase;
    uint64_t
        due; /* REST: when the next rebuild begins. ASKING: when answers are waited for no longer */
    uint64_t due_since; /* since when the name is waited for */
    uint64_t ended;     /* when the last rebuild ended */
    uint64_t pause;
    bool again;   /* another rebuild was requested while one is under way */
    bool lacking; /* the last rebuild ended with questions that were not answered */
    int name_fd;
    uint64_t nonce;
    uint32_t base, tries;
    struct member *members; /* while phase is ASKING */
    uint32_t found;
    uint64_t map; /* a digest of the program's entries */
    uint64_t counts[VB_REUSEPORT_COUNTS];
};

static uint64_t ms(uint64_t count)
{
    return count * 1000000;
}

/* ---- when to make the program again ---- */

static void reuseport_request(struct vb_reuseport *reuseport, uint64_t now)
{
    uint64_t at;

    if (reuseport->config.no_program)
        return;
    if (now - reuseport->ended > 8 * reuseport->pause)
        reuseport->pause = ms(PAUSE_MS);
    at = reuseport->ended + reuseport->pause;
    if (reuseport->phase == ASKING) {
        reuseport->again = true;
        return;
    }
    if (at < now)
        at = now;
    if (reuseport->due == never)
        reuseport->due_since = at;
    if (at < reuseport->due)
        reuseport->due = at;
}

static void request_soon(struct vb_reuseport *reuseport, uint64_t now)
{
    reuseport->pause = ms(PAUSE_MS);
    reuseport_request(reuseport, now);
}

static bool bind_name(struct vb_reuseport *reuseport)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                          "verbena/roce/%u/maintainer", reuseport->config.port);

    reuseport->name_fd = vb_memory_descriptor_raise(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (reuseport->name_fd < 0)
        return false;
    if (bind(reuseport->name_fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
        return true;
    close(reuseport->name_fd);
    reuseport->name_fd = -1;
    return false;
}

static void release_name(struct vb_reuseport *reuseport)
{
    if (reuseport->name_fd >= 0)
        close(reuseport->name_fd);
    reuseport->name_fd = -1;
}

/* ---- questions ---- */

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* A question is a RoCE packet, so that it is checked and captured as others are. */
static void reuseport_ask(struct vb_reuseport *reuseport, uint32_t index, enum kind kind)
{
    static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    struct question question = {
        magic, VERSION, (uint16_t)kind, reuseport->nonce, index, reuseport->probe_port, 0};
    struct vb_bth bth = {.opcode = OPCODE, .pkey = 0xffff, .dest_qp = VB_PROBE_QPN + index};
    struct vb_icrc_flow flow = {.source_port = reuseport->probe_port,
                                .target_port = reuseport->config.port};
    struct sockaddr_in to = loopback(reuseport->config.port);
    uint8_t packet[VB_BTH + sizeof(question) + VB_ICRC];
    uint32_t length = sizeof(packet) - VB_ICRC, crc;

    memcpy(flow.source, mapped, sizeof(mapped));
    memcpy(flow.target, mapped, sizeof(mapped));
    vb_wire_bth_write(packet, &bth);
    memcpy(packet + VB_BTH, &question, sizeof(question));
    crc =
        vb_wire_icrc_with(vb_wire_icrc_start_udp(&flow, length), (struct vb_icrc_unseen){0, true});
    vb_wire_icrc_write(packet + length, vb_wire_icrc_transport(crc, packet, length));
    /* A question that is lost is asked again. */
    sendto(reuseport->probe_fd, packet, sizeof(packet), 0, (struct sockaddr *)&to, sizeof(to));
}

static void ask_unanswered(struct vb_reuseport *reuseport, uint64_t now)
{
    for (uint32_t i = reuseport->base; i < reuseport->base + WINDOW; ++i)
        if (!reuseport->members[i].known)
            reuseport_ask(reuseport, i, QUESTION);
    ++reuseport->tries;
    reuseport->due = now + ms(ANSWER_MS);
}

static void begin_window(struct vb_reuseport *reuseport, uint32_t base, uint64_t now)
{
    reuseport->base = base;
    reuseport->tries = 0;
    ask_unanswered(reuseport, now);
}

static void reuseport_begin(struct vb_reuseport *reuseport, uint64_t now)
{
    if (!bind_name(reuseport) && now - reuseport->due_since < ms(PATIENCE_MS)) {
        reuseport->due = now + ms(NAME_MS);
        return;
    }
    reuseport->members = calloc(VB_PROBE_INDICES, sizeof(*reuseport->members));
    if (!reuseport->members || getrandom(&reuseport->nonce, sizeof(reuseport->nonce), 0) < 0) {
        free(reuseport->members);
        reuseport->members = NULL;
        release_name(reuseport);
        reuseport->due = now + ms(LONGEST_MS);
        return;
    }
    reuseport->phase = ASKING;
    reuseport->again = reuseport->lacking = false;
    begin_window(reuseport, 0, now);
}

/* ---- answers, and the program that they make ---- */

static bool is_repeated(const struct vb_reuseport *reuseport, uint32_t index)
{
    for (uint32_t i = 0; i < index; ++i)
        if (reuseport->members[i].known &&
            reuseport->members[i].answer.instance == reuseport->members[index].answer.instance)
            return true;
    return false;
}

static int by_slot(const void *left, const void *right)
{
    const struct vb_reuseport_entry *a = left, *b = right;

    return (int)a->slot - (int)b->slot;
}

static unsigned list_entries(const struct vb_reuseport *reuseport, uint32_t members,
                             struct vb_reuseport_entry *entries)
{
    unsigned count = 0, kept = 0;

    for (uint32_t i = 0; i < members; ++i)
        for (uint32_t s = 0;
             reuseport->members[i].known && s < reuseport->members[i].answer.slot_count; ++s)
            if (count < VB_SLOTS)
                entries[count++] = (struct vb_reuseport_entry){
                    reuseport->members[i].answer.slots[s] % VB_SLOTS, (uint16_t)i};
    qsort(entries, count, sizeof(*entries), by_slot);
    for (unsigned i = 0; i < count; ++i)
        if (entries[i].slot && (kept == 0 || entries[i].slot != entries[kept - 1].slot))
            entries[kept++] = entries[i];
    return kept;
}

static uint64_t digest(const struct vb_reuseport_entry *entries, unsigned count)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (unsigned i = 0; i < count; ++i)
        hash = (hash ^ (uint64_t)entries[i].slot << 16 ^ entries[i].index) * 0x100000001b3;
    return hash;
}

/* Attaches a program of as many entries as the kernel takes (net.core.optmem_max). */
static void reuseport_attach(const struct vb_reuseport *reuseport,
                             const struct vb_reuseport_entry *entries, unsigned count, int others)
{
    struct sock_filter *program = malloc(VB_BPF_MAX * sizeof(*program));

    for (; program; count = count * 3 / 4) {
        unsigned length = vb_roce_bpf_make(entries, count, others, program);

        if ((length && vb_roce_bpf_attach(reuseport->config.group, program, length) == 0) ||
            count == 0)
            break;
    }
    free(program);
}

/* This process's index: it gets the datagrams for slots that are not in the program, as it runs. */
static int own_index(const struct vb_reuseport *reuseport, uint32_t members)
{
    for (uint32_t i = 0; i < members; ++i)
        if (reuseport->members[i].known &&
            reuseport->members[i].answer.instance == reuseport->config.instance)
            return (int)i;
    return VB_ANY_MEMBER;
}

static void reuseport_finish(struct vb_reuseport *reuseport, uint32_t members, uint64_t now)
{
    struct vb_reuseport_entry *entries = calloc(VB_SLOTS, sizeof(*entries));
    unsigned count = entries ? list_entries(reuseport, members, entries) : 0;
    uint64_t map = digest(entries, count);
    int own = own_index(reuseport, members);
    bool complete = own >= 0 && !reuseport->again;

    if (entries)
        reuseport_attach(reuseport, entries, count, own);
    free(entries);
    free(reuseport->members);
    reuseport->members = NULL;
    release_name(reuseport);
    reuseport->found = members;
    reuseport->phase = REST;
    reuseport->due = never;
    reuseport->ended = now;
    if (map != reuseport->map)
        reuseport->pause = ms(PAUSE_MS);
    else if (reuseport->pause < ms(LONGEST_MS))
        reuseport->pause *= 2;
    reuseport->map = map;
    ++reuseport->counts[VB_REUSEPORT_REBUILDS];
    if (!complete)
        reuseport_request(reuseport, now);
}

static bool is_answered(const struct vb_reuseport *reuseport)
{
    for (uint32_t i = reuseport->base; i < reuseport->base + WINDOW; ++i)
        if (!reuseport->members[i].known)
            return false;
    return true;
}

/* All questions of the window were answered, or have been waited for long enough. */
static void end_window(struct vb_reuseport *reuseport, uint64_t now)
{
    bool any = false;

    reuseport->lacking = reuseport->lacking || !is_answered(reuseport);
    for (uint32_t i = reuseport->base; i < reuseport->base + WINDOW; ++i) {
        if (!reuseport->members[i].known)
            continue; /* a process that is stopped or busy; its packets are forwarded */
        any = true;
        if (is_repeated(reuseport, i)) {
            reuseport_finish(reuseport, i, now);
            return;
        }
    }
    if (!any || reuseport->base + 2 * WINDOW > VB_PROBE_INDICES)
        reuseport_finish(reuseport, reuseport->base + (any ? WINDOW : 0), now);
    else
        begin_window(reuseport, reuseport->base + WINDOW, now);
}

static void reuseport_step(struct vb_reuseport *reuseport, uint64_t now)
{
    if (reuseport->phase == REST) {
        if (now >= reuseport->due)
            reuseport_begin(reuseport, now);
    } else if (is_answered(reuseport)) {
        end_window(reuseport, now);
    } else if (now >= reuseport->due) {
        if (reuseport->tries < TRIES)
            ask_unanswered(reuseport, now);
        else
            end_window(reuseport, now);
    }
}

/* This process is not alone on the port. */
static void reuseport_meet(const struct vb_reuseport *reuseport)
{
    if (reuseport->config.met)
        reuseport->config.met(reuseport->config.argument);
}

/* The answer came after the rebuild, so the process that was busy may be missing in the program. */
static void take_late_answer(struct vb_reuseport *reuseport, uint64_t now)
{
    if (!reuseport->lacking)
        return;
    reuseport->lacking = false;
    reuseport_request(reuseport, now);
}

static void read_answers(struct vb_reuseport *reuseport, uint64_t now)
{
    struct answer answer;
    ssize_t length;

    while ((length = recv(reuseport->probe_fd, &answer, sizeof(answer), MSG_DONTWAIT)) >= 0) {
        if (length != sizeof(answer) || answer.nonce != reuseport->nonce)
            continue;
        if (answer.instance != reuseport->config.instance)
            reuseport_meet(reuseport);
        if (reuseport->phase != ASKING) {
            take_late_answer(reuseport, now);
            continue;
        }
        if (answer.index >= VB_PROBE_INDICES || answer.slot_count > VB_MAX_SLOTS)
            continue;
        reuseport->members[answer.index] = (struct member){true, answer};
    }
}

void vb_roce_reuseport_serve(struct vb_reuseport *reuseport, uint64_t now)
{
    read_answers(reuseport, now);
    vb_roce_forward_serve(reuseport->forward, now);
    reuseport_step(reuseport, now);
}

/* ---- packets ---- */

static void answer_question(struct vb_reuseport *reuseport, const struct question *question)
{
    struct answer answer = {.nonce = question->nonce,
                            .instance = reuseport->config.instance,
                            .index = question->index,
                            .slot_count = reuseport->slot_count};
    struct sockaddr_in to = loopback(question->answer_to);

    memcpy(answer.slots, reuseport->slots, sizeof(answer.slots));
    sendto(reuseport->probe_fd, &answer, sizeof(answer), MSG_DONTWAIT, (struct sockaddr *)&to,
           sizeof(to));
}

static bool read_question(const struct vb_arrival *arrival, struct question *question)
{
    if (!vb_wire_gid_is_ipv4(arrival->sgid) || arrival->sgid[12] != 127 ||
        arrival->length != VB_BTH + sizeof(*question))
        return false;
    memcpy(question, arrival->bytes + VB_BTH, sizeof(*question));
    return question->magic == magic && question->version == VERSION &&
           (question->kind == QUESTION || question->kind == REQUEST);
}

/*
 * A request does not shorten the pause between rebuilds, as any process of this host can send one.
 */
static void take_question(struct vb_reuseport *reuseport, const struct vb_arrival *arrival,
                          uint64_t now)
{
    struct question question;

    if (!read_question(arrival, &question)) {
        ++reuseport->counts[VB_REUSEPORT_DROP_QUESTION];
        return;
    }
    ++reuseport->counts[VB_REUSEPORT_QUESTIONS];
    if (question.nonce != reuseport->nonce)
        reuseport_meet(reuseport);
    if (question.kind == QUESTION)
        answer_question(reuseport, &question);
    else
        reuseport_request(reuseport, now);
}

static void take_stray(struct vb_reuseport *reuseport, uint32_t slot,
                       const struct vb_arrival *arrival, uint64_t now)
{
    int error = vb_roce_forward_send(reuseport->forward, slot, arrival, now);

    ++reuseport->counts[VB_REUSEPORT_STRAYS];
    reuseport_meet(reuseport);
    if (error == 0)
        ++reuseport->counts[VB_REUSEPORT_FORWARDED];
    else if (error == -EAGAIN)
        ++reuseport->counts[VB_REUSEPORT_DROP_BUSY];
    else
        ++reuseport->counts[VB_REUSEPORT_DROP_ABSENT];
    reuseport_request(reuseport, now);
}

static bool owns(const struct vb_reuseport *reuseport, uint32_t slot)
{
    for (uint32_t i = 0; i < reuseport->slot_count; ++i)
        if (reuseport->slots[i] == slot)
            return true;
    return false;
}

static uint32_t destination(const struct vb_arrival *arrival)
{
    return vb_wire_get24(arrival->bytes + 5);
}

bool vb_roce_reuseport_takes(struct vb_reuseport *reuseport, const struct vb_arrival *arrival,
                             uint64_t now)
{
    uint32_t qp_num = destination(arrival), slot = qp_num >> VB_SLOT_BITS;

    if (slot == 0 && qp_num >= VB_PROBE_QPN) {
        take_question(reuseport, arrival, now);
        return false;
    }
    if (owns(reuseport, slot) || qp_num == VB_MULTICAST_QPN)
        return true;
    take_stray(reuseport, slot, arrival, now);
    return false;
}

/* A packet is not forwarded twice: two members that are both wrong would do it for ever. */
static void deliver_forwarded(void *argument, const struct vb_arrival *arrival, uint64_t now)
{
    struct vb_reuseport *reuseport = argument;

    if (owns(reuseport, destination(arrival) >> VB_SLOT_BITS))
        reuseport->config.deliver(reuseport->config.argument, arrival, now);
    else
        ++reuseport->counts[VB_REUSEPORT_DROP_FOREIGN];
}

int vb_roce_reuseport_add_slot(struct vb_reuseport *reuseport, uint32_t slot, uint64_t now)
{
    int error;

    if (reuseport->slot_count == VB_MAX_SLOTS || slot >= VB_SLOTS)
        return -EINVAL;
    error = vb_roce_forward_accept(reuseport->forward, slot);
    if (error)
        return error;
    reuseport->slots[reuseport->slot_count++] = (uint16_t)slot;
    request_soon(reuseport, now);
    return 0;
}

/* ---- open and close ---- */

int vb_roce_reuseport_prepare(int socket)
{
    struct sock_filter program[VB_BPF_MAX];

    return vb_roce_bpf_attach(socket, program, vb_roce_bpf_make(NULL, 0, VB_ANY_MEMBER, program));
}

static int open_probe(struct vb_reuseport *reuseport)
{
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    int unfragmented = IP_PMTUDISC_PROBE;

    reuseport->probe_fd =
        vb_memory_descriptor_raise(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (reuseport->probe_fd < 0)
        return -errno;
    /* A loopback interface that is down has no address; then everything is forwarded. */
    if (bind(reuseport->probe_fd, (struct sockaddr *)&address, sizeof(address)) ||
        getsockname(reuseport->probe_fd, (struct sockaddr *)&address, &size))
        return -errno;
    setsockopt(reuseport->probe_fd, IPPROTO_IP, IP_MTU_DISCOVER, &unfragmented,
               sizeof(unfragmented));
    reuseport->probe_port = ntohs(address.sin_port);
    return 0;
}

static int reuseport_watch(struct vb_reuseport *reuseport, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(reuseport->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int reuseport_open_parts(struct vb_reuseport *reuseport)
{
    int error = vb_roce_forward_open(reuseport->config.port, deliver_forwarded, reuseport,
                                     &reuseport->forward);

    if (!error)
        error = open_probe(reuseport);
    if (error)
        return error;
    reuseport->epoll_fd = vb_memory_descriptor_raise(epoll_create1(EPOLL_CLOEXEC));
    if (reuseport->epoll_fd < 0)
        return -errno;
    error = reuseport_watch(reuseport, reuseport->probe_fd);
    return error ? error : reuseport_watch(reuseport, vb_roce_forward_fd(reuseport->forward));
}

int vb_roce_reuseport_open(const struct vb_reuseport_config *config,
                           struct vb_reuseport **reuseport)
{
    struct vb_reuseport *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    made->config = *config;
    if (!made->config.port)
        made->config.port = VB_ROCE_PORT;
    made->epoll_fd = made->probe_fd = made->name_fd = -1;
    made->due = never;
    made->pause = ms(PAUSE_MS);
    error = reuseport_open_parts(made);
    if (error) {
        vb_roce_reuseport_close(made);
        return error;
    }
    *reuseport = made;
    return 0;
}

void vb_roce_reuseport_set_group(struct vb_reuseport *reuseport, int group)
{
    reuseport->config.group = group;
}

static void reuseport_close_fds(struct vb_reuseport *reuseport)
{
    release_name(reuseport);
    if (reuseport->epoll_fd >= 0)
        close(reuseport->epoll_fd);
    if (reuseport->probe_fd >= 0)
        close(reuseport->probe_fd);
}

void vb_roce_reuseport_close(struct vb_reuseport *reuseport)
{
    for (uint32_t i = 0; reuseport->probe_port && i < ASKED_AT_END; ++i)
        reuseport_ask(reuseport, i, REQUEST);
    reuseport_close_fds(reuseport);
    if (reuseport->forward)
        vb_roce_forward_close(reuseport->forward);
    free(reuseport->members);
    free(reuseport);
}

void vb_roce_reuseport_abandon(struct vb_reuseport *reuseport)
{
    reuseport_close_fds(reuseport);
    vb_roce_forward_abandon(reuseport->forward);
}

int vb_roce_reuseport_fd(const struct vb_reuseport *reuseport)
{
    return reuseport->epoll_fd;
}

uint64_t vb_roce_reuseport_deadline(const struct vb_reuseport *reuseport)
{
    uint64_t forward = vb_roce_forward_deadline(reuseport->forward);

    return forward < reuseport->due ? forward : reuseport->due;
}

bool vb_roce_reuseport_push(struct vb_reuseport *reuseport, uint64_t now)
{
    return vb_roce_forward_push(reuseport->forward, now);
}

uint64_t vb_roce_reuseport_counter(const struct vb_reuseport *reuseport,
                                   enum vb_reuseport_count which)
{
    return reuseport->counts[which];
}

unsigned vb_roce_reuseport_members(const struct vb_reuseport *reuseport)
{
    return reuseport->found;
}

const char *vb_roce_reuseport_counter_name(enum vb_reuseport_count which)
{
    static const char *const names[VB_REUSEPORT_COUNTS] = {
        [VB_REUSEPORT_STRAYS] = "strays",
        [VB_REUSEPORT_FORWARDED] = "forwarded",
        [VB_REUSEPORT_DROP_ABSENT] = "drop_absent",
        [VB_REUSEPORT_DROP_BUSY] = "drop_busy_owner",
        [VB_REUSEPORT_DROP_FOREIGN] = "drop_foreign",
        [VB_REUSEPORT_DROP_QUESTION] = "drop_question",
        [VB_REUSEPORT_QUESTIONS] = "questions",
        [VB_REUSEPORT_REBUILDS] = "rebuilds",
    };

    return which < VB_REUSEPORT_COUNTS ? names[which] : NULL;
}
