// SPDX-License-Identifier: Apache-2.0
/*
 * A fuzzing target: what reaches a process's socket selection and its forwarding from other
 * processes of the host, hostile ones among them. They can send datagrams to the socket for
 * answers, questions to port 4791, and, if they are the same user's, forwarded packets and packets
 * for any slot.
 *
 * The input is a row of steps; each one's first byte says which, modulo STEP_KINDS.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "input.h"
#include "roce/bpf.h"
#include "roce/reuseport.h"
#include "wire/headers.h"

enum step_kind { ANSWER, NOISE, QUESTION, FORWARDED, STRAY, LATER, SLOT, STEP_KINDS };
enum { STEPS_MOST = 64, FIRST_SLOT = 0x321, FORWARD_HEADER = 40, BYTES = 1 << 14 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As reuseport.c lays them out: a member of the same host has the same byte order. */
struct question {
    uint32_t magic;
    uint16_t version, kind;
    uint64_t nonce;
    uint32_t index;
    uint16_t answer_to, reserved;
};

struct answer {
    uint64_t nonce, instance;
    uint32_t index, slot_count;
    uint16_t slots[VB_MAX_SLOTS];
};

enum { MAGIC = 0x56425354, VERSION = 1, ASKS = 1 };

static struct {
    struct vb_reuseport *reuseport;
    int group; /* the UDP socket, which this program reads as another member would */
    int other; /* a socket of the attacker's */
    uint16_t port, other_port;
    struct question seen; /* the last question of the process's own */
    bool owned[VB_SLOTS];
    uint32_t slots;
    uint32_t delivered;
    uint64_t now;
} world;

static void deliver(void *argument, const struct vb_arrival *arrival, uint64_t now)
{
    (void)argument, (void)now;
    CHECK(arrival->length >= VB_BTH);
    CHECK(world.owned[vb_wire_bth_read(arrival->bytes).dest_qp >> VB_SLOT_BITS]);
    for (uint32_t i = 0; i < arrival->length; ++i) /* a sanitizer sees what is not there */
        world.delivered += arrival->bytes[i] == 0xd5;
    ++world.delivered;
}

/* Two that share their ports may be given the same one: only one of them does. */
static int bind_udp(uint16_t *port, int shared)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    CHECK(fd >= 0);
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &shared, sizeof(shared)), 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* ---- what goes to the process ---- */

static void serve(void)
{
    struct question question;
    uint8_t packet[256];
    ssize_t length;

    vb_roce_reuseport_serve(world.reuseport, world.now);
    while ((length = recv(world.group, packet, sizeof(packet), 0)) >= 0) {
        if (length != VB_BTH + sizeof(question) + VB_ICRC)
            continue;
        memcpy(&question, packet + VB_BTH, sizeof(question));
        if (question.magic == MAGIC)
            world.seen = question;
    }
}

static void to_probe(const void *bytes, size_t length)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(world.seen.answer_to),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    if (world.seen.answer_to)
        sendto(world.other, bytes, length, 0, (struct sockaddr *)&to, sizeof(to));
}

static void answer(struct input *input)
{
    uint8_t how = take8(input);
    struct answer made = {.nonce = world.seen.nonce ^ (how & 1),
                          .instance = take8(input) % 4,
                          .index = how & 2 ? take32(input) : take8(input) % 32,
                          .slot_count = how & 4 ? take32(input) : take8(input) % 20};

    for (int i = 0; i < VB_MAX_SLOTS; ++i)
        made.slots[i] = how & 8 ? take16(input) : (uint16_t)(i + take8(input));
    to_probe(&made, how & 16 ? take8(input) % (sizeof(made) + 1) : sizeof(made));
}

static size_t take_bytes(struct input *input, uint8_t *bytes)
{
    size_t length = take16(input) % 512;

    for (size_t i = 0; i < length; ++i)
        bytes[i] = take8(input);
    return length;
}

static void noise(struct input *input)
{
    uint8_t bytes[512];

    to_probe(bytes, take_bytes(input, bytes));
}

/* Exactly as long as the packet: a sanitizer sees who reads beyond. */
static void arrive(const uint8_t *bytes, uint32_t length, bool local)
{
    static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, 127, 0, 0, 1};
    uint8_t *exact = malloc(length);
    struct vb_arrival arrival = {.bytes = exact, .length = length};

    CHECK(exact);
    memcpy(exact, bytes, length);
    memcpy(arrival.sgid, loopback, 16);
    memcpy(arrival.dgid, loopback, 16);
    arrival.sgid[12] = local ? 127 : 10;
    if (vb_roce_reuseport_takes(world.reuseport, &arrival, world.now)) {
        uint32_t qp_num = vb_wire_bth_read(bytes).dest_qp;

        CHECK(world.owned[qp_num >> VB_SLOT_BITS] || qp_num == VB_MULTICAST_QPN ||
              qp_num < VB_PROBE_QPN);
    }
    free(exact);
}

static void question(struct input *input)
{
    uint8_t how = take8(input), bytes[VB_BTH + 512] = {0};
    struct vb_bth bth = {.opcode = 0xfe, .pkey = 0xffff};
    struct question made = {MAGIC, VERSION, take8(input) % 4, take32(input), take8(input), 0, 0};
    uint32_t length = VB_BTH + sizeof(made);

    made.answer_to = how & 1 ? world.other_port : world.port; /* nobody else's */
    made.magic ^= how >> 1 & 1;
    bth.dest_qp = VB_PROBE_QPN + made.index % VB_PROBE_INDICES;
    memcpy(bytes + VB_BTH, &made, sizeof(made));
    if (how & 4)
        length = VB_BTH + (uint32_t)take_bytes(input, bytes + VB_BTH);
    vb_wire_bth_write(bytes, &bth);
    arrive(bytes, length, how & 8);
}

static void stray(struct input *input)
{
    uint8_t bytes[VB_BTH + 512] = {0};
    struct vb_bth bth = {
        .opcode = take8(input), .pkey = 0xffff, .dest_qp = take32(input) & 0xffffff};
    uint32_t length = VB_BTH + (uint32_t)take_bytes(input, bytes + VB_BTH);

    vb_wire_bth_write(bytes, &bth);
    arrive(bytes, length, true);
}

static int connect_to_slot(uint32_t slot)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                          "verbena/roce/%u/%03x", world.port, slot);

    CHECK(fd >= 0);
    if (connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void send_forwarded(uint32_t slot, const uint8_t *bytes, size_t length)
{
    int fd = connect_to_slot(slot);

    if (fd < 0)
        return;
    send(fd, bytes, length, MSG_NOSIGNAL);
    serve(); /* it is let in… */
    serve(); /* …and heard */
    close(fd);
}

static void head(struct input *input)
{
    static uint8_t bytes[BYTES];
    uint8_t how = take8(input);
    size_t length = how & 1 ? take16(input) % BYTES : take8(input);

    memset(bytes, take8(input), FORWARD_HEADER);
    for (size_t i = FORWARD_HEADER; i < FORWARD_HEADER + 64; ++i)
        bytes[i] = take8(input);
    if (how & 2)
        vb_wire_put24(bytes + FORWARD_HEADER + 5, FIRST_SLOT << VB_SLOT_BITS | take8(input));
    send_forwarded(FIRST_SLOT + take8(input) % 4, bytes, length);
}

static void add_slot(uint32_t slot)
{
    int error = vb_roce_reuseport_add_slot(world.reuseport, slot, world.now);

    CHECK_EQ(error != 0, slot == 0 || slot >= VB_SLOTS || world.slots == VB_MAX_SLOTS);
    if (error)
        return;
    world.owned[slot] = true;
    ++world.slots;
}

static void step(struct input *input)
{
    uint32_t slot;

    switch ((enum step_kind)(take8(input) % STEP_KINDS)) {
    case ANSWER:
        answer(input);
        break;
    case NOISE:
        noise(input);
        break;
    case QUESTION:
        question(input);
        break;
    case FORWARDED:
        head(input);
        break;
    case STRAY:
        stray(input);
        break;
    case LATER:
        world.now += 1ull << take8(input) % 34;
        break;
    case SLOT:
        slot = FIRST_SLOT + take8(input) % 32;
        if (!world.owned[slot])
            add_slot(slot);
        break;
    case STEP_KINDS:
        break;
    }
    serve();
    CHECK(vb_roce_reuseport_members(world.reuseport) <= VB_PROBE_INDICES);
}

/* ---- one input ---- */

static void begin(void)
{
    struct vb_reuseport_config config = {.instance = 1, .deliver = deliver};

    memset(&world, 0, sizeof(world));
    world.now = 1000000000;
    world.group = bind_udp(&world.port, true);
    world.other = bind_udp(&world.other_port, false);
    config.group = world.group;
    config.port = world.port;
    CHECK_EQ(vb_roce_reuseport_open(&config, &world.reuseport), 0);
    add_slot(FIRST_SLOT);
    serve();
}

/* After all that a right question has its answer and a right head its reader. */
static void end(void)
{
    struct question asked = {MAGIC, VERSION, ASKS, 0x1122334455667788, 7, world.other_port, 0};
    uint8_t bytes[FORWARD_HEADER + VB_BTH + 8] = {0};
    struct vb_bth bth = {.opcode = 0xfe, .pkey = 0xffff, .dest_qp = VB_PROBE_QPN + 7};
    uint32_t before = world.delivered;
    struct answer got;
    bool answered = false;
    ssize_t length;

    vb_wire_bth_write(bytes, &bth);
    memcpy(bytes + VB_BTH, &asked, sizeof(asked));
    arrive(bytes, VB_BTH + sizeof(asked), true);
    while ((length = recv(world.other, &got, sizeof(got), 0)) >= 0)
        answered |= length == sizeof(got) && got.nonce == asked.nonce && got.index == 7 &&
                    got.instance == 1 && got.slot_count == world.slots;
    CHECK(answered);
    bth.dest_qp = FIRST_SLOT << VB_SLOT_BITS | 9;
    vb_wire_bth_write(bytes + FORWARD_HEADER, &bth);
    send_forwarded(FIRST_SLOT, bytes, sizeof(bytes));
    CHECK(world.delivered > before);
    vb_roce_reuseport_close(world.reuseport);
    close(world.group);
    close(world.other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};

    begin();
    for (int n = 0; input.left && n < STEPS_MOST; ++n)
        step(&input);
    end();
    return 0;
}
