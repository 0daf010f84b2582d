// SPDX-License-Identifier: Apache-2.0
#include "roce/steer.h"

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
#include "roce/program.h"
#include "roce/udp.h"

enum {
    WINDOW = 8,       /* questions at once */
    TRIES = 3,        /* of each */
    ANSWER_MS = 20,   /* how long one is waited for */
    ASKED_AT_END = 3, /* members: one of them may be stopped */
    PAUSE_MS = 2,     /* between rebuilds: twice as long after each that changed nothing… */
    LONGEST_MS = 1000,
    NAME_MS = 2, /* between attempts to get the maintainer's name… */
    PATIENCE_MS = 200,
    VERSION = 1,
    OPCODE = 0xfe, /* of the manufacturer-specific ones */
};

static const uint32_t magic = 0x56425354;
static const uint64_t never = UINT64_MAX;

enum kind { QUESTION = 1, REQUEST = 2 };

/* What follows the BTH of a packet to VB_PROBE_QPN + i. */
struct question {
    uint32_t magic;
    uint16_t version;
    uint16_t kind; /* QUESTION: who are you? REQUEST: make the program again */
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

struct vb_steer {
    struct vb_steer_config config;
    struct vb_forward *forward;
    int epoll_fd, probe_fd;
    uint16_t probe_port;
    uint32_t slot_count;
    uint16_t slots[VB_MAX_SLOTS];

    enum phase phase;
    uint64_t due;       /* REST: the next rebuild. ASKING: the end of the wait for answers */
    uint64_t due_since; /* since when the name is wanted */
    uint64_t ended;     /* the last rebuild */
    uint64_t pause;
    bool again;   /* wanted while one is under way */
    bool lacking; /* the last one ended with questions that nobody had answered */
    int name_fd;
    uint64_t nonce;
    uint32_t base, tries;
    struct member *members; /* while asking */
    uint32_t found;
    uint64_t map; /* a digest of the program's entries */
    uint64_t counts[VB_STEER_COUNTS];
};

static uint64_t ms(uint64_t count)
{
    return count * 1000000;
}

/* ---- when to make the program again ---- */

static void steer_want(struct vb_steer *steer, uint64_t now)
{
    uint64_t at;

    if (steer->config.no_program)
        return;
    if (now - steer->ended > 8 * steer->pause)
        steer->pause = ms(PAUSE_MS);
    at = steer->ended + steer->pause;
    if (steer->phase == ASKING) {
        steer->again = true;
        return;
    }
    if (at < now)
        at = now;
    if (steer->due == never)
        steer->due_since = at;
    if (at < steer->due)
        steer->due = at;
}

static void want_soon(struct vb_steer *steer, uint64_t now)
{
    steer->pause = ms(PAUSE_MS);
    steer_want(steer, now);
}

static bool bind_name(struct vb_steer *steer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                          "verbena/roce/%u/maintainer", steer->config.port);

    steer->name_fd = vb_memory_descriptor_raise(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (steer->name_fd < 0)
        return false;
    if (bind(steer->name_fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
        return true;
    close(steer->name_fd);
    steer->name_fd = -1;
    return false;
}

static void release_name(struct vb_steer *steer)
{
    if (steer->name_fd >= 0)
        close(steer->name_fd);
    steer->name_fd = -1;
}

/* ---- questions ---- */

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* A packet like others, so that it is checked and captured like others. */
static void steer_ask(struct vb_steer *steer, uint32_t index, enum kind kind)
{
    static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    struct question question = {
        magic, VERSION, (uint16_t)kind, steer->nonce, index, steer->probe_port, 0};
    struct vb_bth bth = {.opcode = OPCODE, .pkey = 0xffff, .dest_qp = VB_PROBE_QPN + index};
    struct vb_icrc_flow flow = {.source_port = steer->probe_port,
                                .target_port = steer->config.port};
    struct sockaddr_in to = loopback(steer->config.port);
    uint8_t packet[VB_BTH + sizeof(question) + VB_ICRC];
    uint32_t length = sizeof(packet) - VB_ICRC, crc;

    memcpy(flow.source, mapped, sizeof(mapped));
    memcpy(flow.target, mapped, sizeof(mapped));
    vb_wire_bth_write(packet, &bth);
    memcpy(packet + VB_BTH, &question, sizeof(question));
    crc =
        vb_wire_icrc_with(vb_wire_icrc_start_udp(&flow, length), (struct vb_icrc_unseen){0, true});
    vb_wire_icrc_write(packet + length, vb_wire_icrc_transport(crc, packet, length));
    /* What is lost is asked again. */
    sendto(steer->probe_fd, packet, sizeof(packet), 0, (struct sockaddr *)&to, sizeof(to));
}

static void ask_unanswered(struct vb_steer *steer, uint64_t now)
{
    for (uint32_t i = steer->base; i < steer->base + WINDOW; ++i)
        if (!steer->members[i].known)
            steer_ask(steer, i, QUESTION);
    ++steer->tries;
    steer->due = now + ms(ANSWER_MS);
}

static void begin_window(struct vb_steer *steer, uint32_t base, uint64_t now)
{
    steer->base = base;
    steer->tries = 0;
    ask_unanswered(steer, now);
}

static void steer_begin(struct vb_steer *steer, uint64_t now)
{
    if (!bind_name(steer) && now - steer->due_since < ms(PATIENCE_MS)) {
        steer->due = now + ms(NAME_MS);
        return;
    }
    steer->members = calloc(VB_PROBE_INDICES, sizeof(*steer->members));
    if (!steer->members || getrandom(&steer->nonce, sizeof(steer->nonce), 0) < 0) {
        free(steer->members);
        steer->members = NULL;
        release_name(steer);
        steer->due = now + ms(LONGEST_MS);
        return;
    }
    steer->phase = ASKING;
    steer->again = steer->lacking = false;
    begin_window(steer, 0, now);
}

/* ---- answers, and the program that they make ---- */

static bool is_repeated(const struct vb_steer *steer, uint32_t index)
{
    for (uint32_t i = 0; i < index; ++i)
        if (steer->members[i].known &&
            steer->members[i].answer.instance == steer->members[index].answer.instance)
            return true;
    return false;
}

static int by_slot(const void *left, const void *right)
{
    const struct vb_steer_entry *a = left, *b = right;

    return (int)a->slot - (int)b->slot;
}

static unsigned list_entries(const struct vb_steer *steer, uint32_t members,
                             struct vb_steer_entry *entries)
{
    unsigned count = 0, kept = 0;

    for (uint32_t i = 0; i < members; ++i)
        for (uint32_t s = 0; steer->members[i].known && s < steer->members[i].answer.slot_count;
             ++s)
            if (count < VB_SLOTS)
                entries[count++] = (struct vb_steer_entry){
                    steer->members[i].answer.slots[s] % VB_SLOTS, (uint16_t)i};
    qsort(entries, count, sizeof(*entries), by_slot);
    for (unsigned i = 0; i < count; ++i)
        if (entries[i].slot && (kept == 0 || entries[i].slot != entries[kept - 1].slot))
            entries[kept++] = entries[i];
    return kept;
}

static uint64_t digest(const struct vb_steer_entry *entries, unsigned count)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (unsigned i = 0; i < count; ++i)
        hash = (hash ^ (uint64_t)entries[i].slot << 16 ^ entries[i].index) * 0x100000001b3;
    return hash;
}

/* As many of the entries as the kernel takes (net.core.optmem_max). */
static void steer_attach(const struct vb_steer *steer, const struct vb_steer_entry *entries,
                         unsigned count, int others)
{
    struct sock_filter *program = malloc(VB_PROGRAM_MAX * sizeof(*program));

    for (; program; count = count * 3 / 4) {
        unsigned length = vb_roce_program_make(entries, count, others, program);

        if ((length && vb_roce_program_attach(steer->config.group, program, length) == 0) ||
            count == 0)
            break;
    }
    free(program);
}

/* This process's index: it forwards what is of no slot in the program, since it is at work. */
static int own_index(const struct vb_steer *steer, uint32_t members)
{
    for (uint32_t i = 0; i < members; ++i)
        if (steer->members[i].known && steer->members[i].answer.instance == steer->config.instance)
            return (int)i;
    return VB_ANY_MEMBER;
}

static void steer_finish(struct vb_steer *steer, uint32_t members, uint64_t now)
{
    struct vb_steer_entry *entries = calloc(VB_SLOTS, sizeof(*entries));
    unsigned count = entries ? list_entries(steer, members, entries) : 0;
    uint64_t map = digest(entries, count);
    int own = own_index(steer, members);
    bool complete = own >= 0 && !steer->again;

    if (entries)
        steer_attach(steer, entries, count, own);
    free(entries);
    free(steer->members);
    steer->members = NULL;
    release_name(steer);
    steer->found = members;
    steer->phase = REST;
    steer->due = never;
    steer->ended = now;
    if (map != steer->map)
        steer->pause = ms(PAUSE_MS);
    else if (steer->pause < ms(LONGEST_MS))
        steer->pause *= 2;
    steer->map = map;
    ++steer->counts[VB_STEER_REBUILDS];
    if (!complete)
        steer_want(steer, now);
}

static bool is_answered(const struct vb_steer *steer)
{
    for (uint32_t i = steer->base; i < steer->base + WINDOW; ++i)
        if (!steer->members[i].known)
            return false;
    return true;
}

/* The window's questions are answered, or will not be. */
static void end_window(struct vb_steer *steer, uint64_t now)
{
    bool any = false;

    steer->lacking = steer->lacking || !is_answered(steer);
    for (uint32_t i = steer->base; i < steer->base + WINDOW; ++i) {
        if (!steer->members[i].known)
            continue; /* a process that is stopped or busy: its packets are forwarded */
        any = true;
        if (is_repeated(steer, i)) {
            steer_finish(steer, i, now);
            return;
        }
    }
    if (!any || steer->base + 2 * WINDOW > VB_PROBE_INDICES)
        steer_finish(steer, steer->base + (any ? WINDOW : 0), now);
    else
        begin_window(steer, steer->base + WINDOW, now);
}

static void steer_step(struct vb_steer *steer, uint64_t now)
{
    if (steer->phase == REST) {
        if (now >= steer->due)
            steer_begin(steer, now);
    } else if (is_answered(steer)) {
        end_window(steer, now);
    } else if (now >= steer->due) {
        if (steer->tries < TRIES)
            ask_unanswered(steer, now);
        else
            end_window(steer, now);
    }
}

/* Too late for the program, which the process that was busy may not be in. */
static void take_late_answer(struct vb_steer *steer, uint64_t now)
{
    if (!steer->lacking)
        return;
    steer->lacking = false;
    steer_want(steer, now);
}

static void read_answers(struct vb_steer *steer, uint64_t now)
{
    struct answer answer;
    ssize_t length;

    while ((length = recv(steer->probe_fd, &answer, sizeof(answer), MSG_DONTWAIT)) >= 0) {
        if (length != sizeof(answer) || answer.nonce != steer->nonce)
            continue;
        if (steer->phase != ASKING) {
            take_late_answer(steer, now);
            continue;
        }
        if (answer.index >= VB_PROBE_INDICES || answer.slot_count > VB_MAX_SLOTS)
            continue;
        steer->members[answer.index] = (struct member){true, answer};
    }
}

void vb_roce_steer_serve(struct vb_steer *steer, uint64_t now)
{
    read_answers(steer, now);
    vb_roce_forward_serve(steer->forward, now);
    steer_step(steer, now);
}

/* ---- packets ---- */

static void answer_question(struct vb_steer *steer, const struct question *question)
{
    struct answer answer = {.nonce = question->nonce,
                            .instance = steer->config.instance,
                            .index = question->index,
                            .slot_count = steer->slot_count};
    struct sockaddr_in to = loopback(question->answer_to);

    memcpy(answer.slots, steer->slots, sizeof(answer.slots));
    sendto(steer->probe_fd, &answer, sizeof(answer), MSG_DONTWAIT, (struct sockaddr *)&to,
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

/* Any process of this host can ask; so a request does not shorten the pause between rebuilds. */
static void take_question(struct vb_steer *steer, const struct vb_arrival *arrival, uint64_t now)
{
    struct question question;

    if (!read_question(arrival, &question)) {
        ++steer->counts[VB_STEER_DROP_QUESTION];
        return;
    }
    ++steer->counts[VB_STEER_QUESTIONS];
    if (question.kind == QUESTION)
        answer_question(steer, &question);
    else
        steer_want(steer, now);
}

static void take_stray(struct vb_steer *steer, uint32_t slot, const struct vb_arrival *arrival,
                       uint64_t now)
{
    int error = vb_roce_forward_send(steer->forward, slot, arrival, now);

    ++steer->counts[VB_STEER_STRAYS];
    if (error == 0)
        ++steer->counts[VB_STEER_FORWARDED];
    else if (error == -EAGAIN)
        ++steer->counts[VB_STEER_DROP_BUSY];
    else
        ++steer->counts[VB_STEER_DROP_ABSENT];
    steer_want(steer, now);
}

static bool owns(const struct vb_steer *steer, uint32_t slot)
{
    for (uint32_t i = 0; i < steer->slot_count; ++i)
        if (steer->slots[i] == slot)
            return true;
    return false;
}

static uint32_t destination(const struct vb_arrival *arrival)
{
    return vb_wire_get24(arrival->bytes + 5);
}

bool vb_roce_steer_takes(struct vb_steer *steer, const struct vb_arrival *arrival, uint64_t now)
{
    uint32_t qp_num = destination(arrival), slot = qp_num >> VB_SLOT_BITS;

    if (owns(steer, slot) || qp_num == VB_MULTICAST_QPN || qp_num < VB_PROBE_QPN)
        return true;
    if (slot == 0)
        take_question(steer, arrival, now);
    else
        take_stray(steer, slot, arrival, now);
    return false;
}

/* Never forwarded twice: two members that are both wrong would do it for ever. */
static void deliver_forwarded(void *argument, const struct vb_arrival *arrival, uint64_t now)
{
    struct vb_steer *steer = argument;

    if (owns(steer, destination(arrival) >> VB_SLOT_BITS))
        steer->config.deliver(steer->config.argument, arrival, now);
    else
        ++steer->counts[VB_STEER_DROP_FOREIGN];
}

int vb_roce_steer_add_slot(struct vb_steer *steer, uint32_t slot, uint64_t now)
{
    int error;

    if (steer->slot_count == VB_MAX_SLOTS || slot == 0 || slot >= VB_SLOTS)
        return -EINVAL;
    error = vb_roce_forward_accept(steer->forward, slot);
    if (error)
        return error;
    steer->slots[steer->slot_count++] = (uint16_t)slot;
    want_soon(steer, now);
    return 0;
}

/* ---- open and close ---- */

int vb_roce_steer_prepare(int socket)
{
    struct sock_filter program[VB_PROGRAM_MAX];

    return vb_roce_program_attach(socket, program,
                                  vb_roce_program_make(NULL, 0, VB_ANY_MEMBER, program));
}

static int open_probe(struct vb_steer *steer)
{
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    int unfragmented = IP_PMTUDISC_PROBE;

    steer->probe_fd =
        vb_memory_descriptor_raise(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (steer->probe_fd < 0)
        return -errno;
    /* A loopback that is down has no address: then everything is forwarded. */
    if (bind(steer->probe_fd, (struct sockaddr *)&address, sizeof(address)) ||
        getsockname(steer->probe_fd, (struct sockaddr *)&address, &size))
        return -errno;
    setsockopt(steer->probe_fd, IPPROTO_IP, IP_MTU_DISCOVER, &unfragmented, sizeof(unfragmented));
    steer->probe_port = ntohs(address.sin_port);
    return 0;
}

static int steer_watch(struct vb_steer *steer, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(steer->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int steer_open_parts(struct vb_steer *steer)
{
    int error = vb_roce_forward_open(steer->config.port, deliver_forwarded, steer, &steer->forward);

    if (!error)
        error = open_probe(steer);
    if (error)
        return error;
    steer->epoll_fd = vb_memory_descriptor_raise(epoll_create1(EPOLL_CLOEXEC));
    if (steer->epoll_fd < 0)
        return -errno;
    error = steer_watch(steer, steer->probe_fd);
    return error ? error : steer_watch(steer, vb_roce_forward_fd(steer->forward));
}

int vb_roce_steer_open(const struct vb_steer_config *config, struct vb_steer **steer)
{
    struct vb_steer *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    made->config = *config;
    if (!made->config.port)
        made->config.port = VB_ROCE_PORT;
    made->epoll_fd = made->probe_fd = made->name_fd = -1;
    made->due = never;
    made->pause = ms(PAUSE_MS);
    error = steer_open_parts(made);
    if (error) {
        vb_roce_steer_close(made);
        return error;
    }
    *steer = made;
    return 0;
}

void vb_roce_steer_set_group(struct vb_steer *steer, int group)
{
    steer->config.group = group;
}

static void steer_close_fds(struct vb_steer *steer)
{
    release_name(steer);
    if (steer->epoll_fd >= 0)
        close(steer->epoll_fd);
    if (steer->probe_fd >= 0)
        close(steer->probe_fd);
}

void vb_roce_steer_close(struct vb_steer *steer)
{
    for (uint32_t i = 0; steer->probe_port && i < ASKED_AT_END; ++i)
        steer_ask(steer, i, REQUEST);
    steer_close_fds(steer);
    if (steer->forward)
        vb_roce_forward_close(steer->forward);
    free(steer->members);
    free(steer);
}

void vb_roce_steer_abandon(struct vb_steer *steer)
{
    steer_close_fds(steer);
    vb_roce_forward_abandon(steer->forward);
}

int vb_roce_steer_fd(const struct vb_steer *steer)
{
    return steer->epoll_fd;
}

uint64_t vb_roce_steer_deadline(const struct vb_steer *steer)
{
    uint64_t forward = vb_roce_forward_deadline(steer->forward);

    return forward < steer->due ? forward : steer->due;
}

bool vb_roce_steer_push(struct vb_steer *steer, uint64_t now)
{
    return vb_roce_forward_push(steer->forward, now);
}

uint64_t vb_roce_steer_counter(const struct vb_steer *steer, enum vb_steer_count which)
{
    return steer->counts[which];
}

unsigned vb_roce_steer_members(const struct vb_steer *steer)
{
    return steer->found;
}

const char *vb_roce_steer_counter_name(enum vb_steer_count which)
{
    static const char *const names[VB_STEER_COUNTS] = {
        [VB_STEER_STRAYS] = "strays",
        [VB_STEER_FORWARDED] = "forwarded",
        [VB_STEER_DROP_ABSENT] = "drop_absent",
        [VB_STEER_DROP_BUSY] = "drop_busy_owner",
        [VB_STEER_DROP_FOREIGN] = "drop_foreign",
        [VB_STEER_DROP_QUESTION] = "drop_question",
        [VB_STEER_QUESTIONS] = "questions",
        [VB_STEER_REBUILDS] = "rebuilds",
    };

    return which < VB_STEER_COUNTS ? names[which] : NULL;
}
