// SPDX-License-Identifier: Apache-2.0
/*
 * The capture file: whole after each packet, whoever writes and whoever is killed.
 *
 * "test_capture write FILE" writes the packets that test_tshark.py reads.
 */
#include "check.h"
#include "rules.h"
#include "wrap/capture_file.h"
#include "wrap/capture_message.h"
#include "wrap/pcapng.h"
#include "wrap/wrap.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILE_NAME "capture.pcapng"

enum { FIRST_QP = 0x40, LARGEST = 4096, FRONT = 14 + 20 + 8 };

static const struct vb_path ipv4 = {.sgid = {[10] = 0xff, 0xff, 10, 0, 0, 1},
                                    .dgid = {[10] = 0xff, 0xff, 10, 0, 0, 2},
                                    .source_port = 0xc001,
                                    .traffic_class = 0x6a,
                                    .mtu = 1024,
                                    .hop_limit = 17};
static const struct vb_path ipv6 = {.sgid = {0xfe, 0x80, [14] = 1, 1},
                                    .dgid = {0x20, 0x01, 0x0d, 0xb8, [15] = 2},
                                    .flow_label = 0x54321,
                                    .traffic_class = 0x03,
                                    .mtu = 256};
static uint8_t payload[LARGEST + 64];

static void fill_payload(void)
{
    for (size_t i = 0; i < sizeof(payload); ++i)
        payload[i] = (uint8_t)(i * 7 + i / 256 + 0x51);
}

static struct vb_capture *opened(const char *name, uint32_t bytes)
{
    struct vb_capture_config config = {
        .path = name, .bytes = bytes, .epoch = 1700000000 * UINT64_C(1000000000)};
    struct vb_capture *capture = NULL;
    int error = vb_wrap_capture_open(&config, &capture);

    if (error)
        fprintf(stderr, "%s: %s\n", name, vb_wrap_capture_problem(error));
    CHECK_EQ(error, 0);
    return capture;
}

static int problem(const char *name)
{
    struct vb_capture_config config = {.path = name};
    struct vb_capture *capture = NULL;
    int error = vb_wrap_capture_open(&config, &capture);

    CHECK(error && !capture && *vb_wrap_capture_problem(error));
    return error;
}

/* A SEND Only whose PSN counts, from this QP. */
static void put_on(const struct vb_path *path, struct vb_capture *capture, uint32_t qp_num,
                   uint32_t psn, uint32_t length)
{
    struct vb_packet packet = {.path = path,
                               .qp_num = qp_num,
                               .header_length = VB_BTH,
                               .pad = (uint8_t)(-length & 3),
                               .payload_length = length,
                               .piece_count = 1,
                               .piece = {{payload, length}}};
    struct vb_wrap_frame facts = {.source_port = 0xc001};

    vb_wire_bth_write(packet.header, &(struct vb_bth){.opcode = VB_OP_SEND_ONLY,
                                                      .pad = packet.pad,
                                                      .pkey = 0xffff,
                                                      .dest_qp = FIRST_QP + qp_num,
                                                      .psn = psn});
    vb_wrap_capture_packet(capture, &packet, &facts, 0, psn % 5 ? NULL : "every fifth", psn);
}

static void put(struct vb_capture *capture, uint32_t qp_num, uint32_t psn, uint32_t length)
{
    put_on(&ipv4, capture, qp_num, psn, length);
}

/* ---- reading back ---- */

static uint32_t u32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

static uint8_t *contents(const char *name, size_t *size)
{
    struct stat status;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    uint8_t *bytes;

    CHECK(fd >= 0 && fstat(fd, &status) == 0);
    *size = (size_t)status.st_size;
    bytes = malloc(*size + 1);
    CHECK(bytes && read(fd, bytes, *size) == (ssize_t)*size);
    close(fd);
    return bytes;
}

typedef void (*visitor)(const uint8_t *frame, uint32_t captured, uint32_t length, void *argument);

/* Every block is whole, to the last byte of the file; returns how many packets there are. */
static unsigned walk(const char *name, visitor visit, void *argument)
{
    size_t size, at = 0;
    uint8_t *bytes = contents(name, &size);
    unsigned packets = 0;

    CHECK(size >= VB_CAPTURE_PAGE && size % VB_CAPTURE_PAGE == 0);
    CHECK_EQ(u32(bytes), VB_PCAPNG_SECTION);
    while (at < size) {
        uint32_t type = u32(bytes + at), length = u32(bytes + at + 4);

        CHECK(length >= VB_PCAPNG_LEAST && length % 4 == 0 && length <= size - at);
        CHECK_EQ(u32(bytes + at + length - 4), length);
        CHECK(at / VB_CAPTURE_PAGE == (at + length - 1) / VB_CAPTURE_PAGE ||
              (length > VB_CAPTURE_PAGE - VB_PCAPNG_LEAST && at % VB_CAPTURE_PAIR == 0) ||
              (type == VB_PCAPNG_FILLER && length > VB_CAPTURE_PAGE));
        if (type == VB_PCAPNG_PACKET) {
            ++packets;
            CHECK(u32(bytes + at + 20) <= length - VB_PCAPNG_PACKET_FIXED);
            if (visit)
                visit(bytes + at + 28, u32(bytes + at + 20), u32(bytes + at + 24), argument);
        } else {
            CHECK(type == VB_PCAPNG_FILLER || at < VB_CAPTURE_PAGE);
        }
        at += length;
    }
    free(bytes);
    return packets;
}

/* ---- one process ---- */

static void test_an_empty_capture(void)
{
    unlink(FILE_NAME);
    vb_wrap_capture_close(opened(FILE_NAME, 0));
    CHECK_EQ(walk(FILE_NAME, NULL, NULL), 0);
}

static void test_a_capture_is_continued(void)
{
    unlink(FILE_NAME);
    for (uint32_t i = 0; i < 3; ++i) {
        struct vb_capture *capture = opened(FILE_NAME, 0);

        put(capture, 1, i, 10);
        vb_wrap_capture_close(capture);
    }
    CHECK_EQ(walk(FILE_NAME, NULL, NULL), 3);
}

static void check_size(const uint8_t *frame, uint32_t captured, uint32_t length, void *argument)
{
    uint32_t *expected = argument;
    uint32_t whole = FRONT + VB_BTH + (*expected + 3) / 4 * 4 + VB_ICRC;

    CHECK_EQ(length, whole);
    CHECK_EQ(captured, whole);
    CHECK(memcmp(frame + FRONT + VB_BTH, payload, *expected) == 0);
    ++*expected;
}

static void test_every_size_of_a_packet(void)
{
    struct vb_capture *capture;
    uint32_t expected = 0;

    unlink(FILE_NAME);
    capture = opened(FILE_NAME, 0);
    for (uint32_t length = 0; length <= LARGEST; ++length)
        put(capture, 1, length, length);
    CHECK_EQ(vb_wrap_capture_lost(capture), 0);
    vb_wrap_capture_close(capture);
    CHECK_EQ(walk(FILE_NAME, check_size, &expected), LARGEST + 1);
}

static void check_cut(const uint8_t *frame, uint32_t captured, uint32_t length, void *argument)
{
    (void)frame;
    CHECK_EQ(captured, *(uint32_t *)argument);
    CHECK_EQ(length, FRONT + VB_BTH + 1000 + VB_ICRC);
}

static void test_bytes_to_keep(void)
{
    struct vb_capture_config config = {.path = FILE_NAME, .bytes = VB_CAPTURE_BYTES_LEAST - 1};
    struct vb_capture *capture;

    unlink(FILE_NAME);
    CHECK_EQ(vb_wrap_capture_open(&config, &capture), -ERANGE);
    config.bytes = VB_CAPTURE_BYTES_MOST + 1;
    CHECK_EQ(vb_wrap_capture_open(&config, &capture), -ERANGE);
    capture = opened(FILE_NAME, 96);
    for (uint32_t i = 0; i < 100; ++i)
        put(capture, 1, i, 1000);
    vb_wrap_capture_close(capture);
    CHECK_EQ(walk(FILE_NAME, check_cut, &(uint32_t){96}), 100);
}

static void check_virtual(const uint8_t *frame, uint32_t captured, uint32_t length, void *argument)
{
    (void)frame;
    (void)argument;
    CHECK_EQ(captured, FRONT + VB_BTH);
    CHECK_EQ(length, FRONT + VB_BTH + 1000 + VB_ICRC);
}

static void test_a_virtual_payload_is_a_length(void)
{
    struct vb_packet packet = {.path = &ipv4,
                               .header_length = VB_BTH,
                               .payload_length = 1000,
                               .piece_count = 1,
                               .piece = {{NULL, 1000}}};
    struct vb_capture *capture;

    unlink(FILE_NAME);
    capture = opened(FILE_NAME, 0);
    vb_wrap_capture_packet(capture, &packet, &(struct vb_wrap_frame){0}, 0, NULL, 0);
    vb_wrap_capture_close(capture);
    CHECK_EQ(walk(FILE_NAME, check_virtual, NULL), 1);
}

/* ---- files that are none of ours ---- */

static void write_file(const char *name, const void *bytes, size_t size)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

static void test_refused_files(void)
{
    uint8_t zeros[2 * VB_CAPTURE_PAGE] = {0}, page[VB_CAPTURE_PAGE + 1];
    size_t size;

    write_file("foreign", zeros, sizeof(zeros));
    CHECK_EQ(problem("foreign"), -EBADMSG);
    write_file("empty", zeros, 0);
    CHECK_EQ(vb_wrap_capture_file_renew("empty", VB_PCAPNG_ETHERNET),
             0); /* nothing was in it that could be lost */
    free(contents("foreign", &size));
    CHECK_EQ(size, sizeof(zeros));
    vb_wrap_capture_file_begin(page, VB_PCAPNG_ETHERNET);
    write_file("odd", page, sizeof(page));
    CHECK_EQ(problem("odd"), -EBADMSG);
    write_file("short", page, 100);
    CHECK_EQ(problem("short"), -EBADMSG);
    mkfifo("fifo", 0666);
    CHECK_EQ(problem("fifo"), -EINVAL);
    CHECK_EQ(problem("."), -EISDIR);
    CHECK_EQ(problem("missing/folder"), -ENOENT);
    CHECK_EQ(problem("/dev/null"), -EINVAL);
}

/* A file's first page, and a second one whose words are given by their place. */
static int problem_of(const uint32_t (*words)[2], size_t count)
{
    static uint8_t pages[2 * VB_CAPTURE_PAGE];
    struct vb_capture_config config = {.path = "made"};
    struct vb_capture *capture = NULL;
    int error;

    vb_wrap_capture_file_begin(pages, VB_PCAPNG_ETHERNET);
    vb_wrap_pcapng_filler(pages + VB_CAPTURE_PAGE, VB_CAPTURE_PAGE, 0);
    for (size_t i = 0; i < count; ++i)
        memcpy(pages + VB_CAPTURE_PAGE + words[i][0], &words[i][1], 4);
    write_file("made", pages, sizeof(pages));
    error = vb_wrap_capture_open(&config, &capture);
    vb_wrap_capture_close(capture);
    return error;
}

/* What a second page says of its block and of the filler at its end, and whether it is a capture's;
 * the first half of a large packet is cut off. */
static void test_second_pages(void)
{
    enum { LAST = VB_CAPTURE_PAGE - 4, PACKET = VB_PCAPNG_PACKET };
    static const struct {
        uint32_t words[3][2];
        int error;
        off_t pages;
    } cases[] = {
        {{{0, VB_PCAPNG_FILLER}}, 0, 2},
        {{{0, PACKET}}, 0, 1},                     /* of a whole page */
        {{{4, VB_CAPTURE_PAGE - 4}}, -EBADMSG, 2}, /* of another length */
        {{{LAST, 12}}, -EBADMSG, 2},               /* too short */
        {{{LAST, 0}}, -EBADMSG, 2},
        {{{LAST - 15, VB_PCAPNG_FILLER}, {LAST, 15}}, -EBADMSG, 2}, /* no multiple of four */
        {{{VB_CAPTURE_PAGE - 16, VB_PCAPNG_FILLER}, {VB_CAPTURE_PAGE - 12, 16}, {LAST, 16}}, 0, 2},
        {{{LAST, VB_CAPTURE_PAIR + 4}}, -EBADMSG, 2}, /* before the file */
        {{{LAST, 4 * VB_CAPTURE_PAGE}}, -EBADMSG, 2},
        {{{0, PACKET}, {4, VB_CAPTURE_PAGE - 16}, {LAST, 0}}, -EBADMSG, 2}, /* it fits a page */
        {{{0, PACKET}, {4, VB_CAPTURE_PAGE - 12}, {LAST, 0}}, 0, 1},
        {{{0, PACKET}, {4, VB_CAPTURE_BLOCK}, {LAST, 0}}, 0, 1},
        {{{0, PACKET}, {4, VB_CAPTURE_BLOCK + 4}, {LAST, 0}}, -EBADMSG, 2},
        {{{0, VB_PCAPNG_INTERFACE}, {4, VB_CAPTURE_PAGE}, {LAST, 0}}, -EBADMSG, 2},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        size_t count = 1, size;

        while (count < 3 && cases[i].words[count][0])
            ++count;
        if (problem_of(cases[i].words, count) != cases[i].error)
            fprintf(stderr, "second page %zu\n", i);
        CHECK_EQ(problem_of(cases[i].words, count), cases[i].error);
        free(contents("made", &size));
        CHECK_EQ(size, (size_t)cases[i].pages * VB_CAPTURE_PAGE);
    }
}

/* The first page as the draft has it (draft-ietf-opsawg-pcapng), in this machine's byte order. */
static void test_the_first_page(void)
{
    static const uint32_t words[] = {
        0x0a0d0d0a,  44,         0x1a2b3c4d, 1,  UINT32_MAX,
        UINT32_MAX,                                  /* section, of unknown length */
        7 << 16 | 4, 0x62726556, 0x00616e65, 0,  44, /* by "Verbena" */
        1,           44,         1,          0,      /* Ethernet, whole packets */
        8 << 16 | 2, 0x62726576, 0x30616e65,         /* "verbena0" */
        1 << 16 | 9, 9,          0,          44,     /* nanoseconds */
    };
    uint8_t page[VB_CAPTURE_PAGE];

    vb_wrap_capture_file_begin(page, VB_PCAPNG_ETHERNET);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); ++i) {
        if (u32(page + 4 * i) != words[i])
            fprintf(stderr, "word %zu: %x\n", i, u32(page + 4 * i));
        CHECK_EQ(u32(page + 4 * i), words[i]);
    }
    CHECK_EQ(u32(page + sizeof(words)), VB_PCAPNG_FILLER);
    CHECK_EQ(u32(page + sizeof(words) + 4), VB_CAPTURE_PAGE - sizeof(words));
    for (size_t i = sizeof(words) + 8; i < VB_CAPTURE_PAGE - 4; ++i)
        CHECK_EQ(page[i], 0);
}

/* Back to its first page, if it is a capture of ours and nobody keeps it. */
static void test_a_capture_is_renewed(void)
{
    struct vb_capture *capture;
    uint8_t zeros[VB_CAPTURE_PAGE] = {0};
    size_t size;
    int fd;

    unlink(FILE_NAME);
    CHECK_EQ(vb_wrap_capture_file_renew(FILE_NAME, VB_PCAPNG_ETHERNET), 0); /* made */
    capture = opened(FILE_NAME, 0);
    for (uint32_t i = 0; i < 100; ++i)
        put(capture, 1, i, 1000);
    CHECK_EQ(walk(FILE_NAME, NULL, NULL), 100);
    CHECK_EQ(vb_wrap_capture_file_renew(FILE_NAME, VB_PCAPNG_ETHERNET), 0);
    CHECK_EQ(walk(FILE_NAME, NULL, NULL), 0);
    free(contents(FILE_NAME, &size));
    CHECK_EQ(size, VB_CAPTURE_PAGE);
    put(capture, 1, 0, 10);
    CHECK_EQ(walk(FILE_NAME, NULL, NULL), 1);
    fd = open(FILE_NAME, O_RDWR | O_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_OFD_SETLK, &(struct flock){.l_type = F_WRLCK}), 0);
    CHECK_EQ(vb_wrap_capture_file_renew(FILE_NAME, VB_PCAPNG_ETHERNET), -ETIMEDOUT);
    close(fd);
    CHECK_EQ(walk(FILE_NAME, NULL, NULL), 1);
    vb_wrap_capture_close(capture);
    write_file("foreign", zeros, sizeof(zeros));
    CHECK_EQ(vb_wrap_capture_file_renew("foreign", VB_PCAPNG_ETHERNET), -EBADMSG);
    free(contents("foreign", &size));
    CHECK_EQ(size, sizeof(zeros));
    CHECK_EQ(vb_wrap_capture_file_renew(".", VB_PCAPNG_ETHERNET), -EISDIR);
    for (int i = 0; i < 200; ++i) /* no descriptor stays open */
        CHECK(vb_wrap_capture_file_renew(FILE_NAME, VB_PCAPNG_ETHERNET) == 0 &&
              vb_wrap_capture_file_renew("foreign", VB_PCAPNG_ETHERNET) == -EBADMSG);
    fd = open(FILE_NAME, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fd < 100);
    close(fd);
}

/* The number of a packet counts all that stand before it, whoever wrote them. */
static void test_packets_are_numbered(void)
{
    static uint8_t block[VB_CAPTURE_PAIR];
    uint32_t number;

    unlink(FILE_NAME);
    for (uint32_t i = 1; i < 60; ++i) {
        struct vb_pcapng_packet packet = {.captured = i * 67 % 4200, .length = 5000};
        int fd = vb_wrap_capture_file_open(FILE_NAME);

        CHECK(fd >= 0);
        CHECK_EQ(vb_wrap_capture_file_add(fd, block, vb_wrap_pcapng_packet(block, &packet), 100,
                                          &number),
                 0);
        CHECK_EQ(number, i);
        CHECK_EQ(vb_wrap_capture_file_add(fd, block, VB_CAPTURE_BLOCK + 1, 100, &number),
                 -EMSGSIZE);
        close(fd);
        CHECK_EQ(walk(FILE_NAME, NULL, NULL), i);
    }
}

/* The file stays whole, the program goes on, and what is missing is counted. */
static void test_a_file_that_may_not_grow(void)
{
    struct rlimit limit, small;
    struct vb_capture *capture;
    unsigned written;

    unlink(FILE_NAME);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 5 * VB_CAPTURE_PAGE + 100;
    capture = opened(FILE_NAME, 0);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (uint32_t i = 0; i < 100; ++i)
        put(capture, 1, i, 1000);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    written = walk(FILE_NAME, NULL, NULL);
    CHECK(written >= 8 && written <= 20);
    CHECK_EQ(vb_wrap_capture_lost(capture), 100 - written);
    vb_wrap_capture_close(capture);
}

/* As a stopped process would: its peers lose packets, and do not stand still. */
static void test_a_lock_that_is_never_released(void)
{
    struct vb_capture *capture;
    struct timespec begin, end;
    int fd;

    unlink(FILE_NAME);
    capture = opened(FILE_NAME, 0);
    fd = open(FILE_NAME, O_RDWR | O_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_OFD_SETLK, &(struct flock){.l_type = F_WRLCK}), 0);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint32_t i = 0; i < 100; ++i)
        put(capture, 1, i, 10);
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK(end.tv_sec - begin.tv_sec < 10);
    CHECK_EQ(vb_wrap_capture_lost(capture), 100);
    close(fd);
    put(capture, 1, 0, 10);
    CHECK_EQ(vb_wrap_capture_lost(capture), 100);
    CHECK_EQ(walk(FILE_NAME, NULL, NULL), 1);
    vb_wrap_capture_close(capture);
}

/* ---- several processes ---- */

static void test_a_forked_child_does_not_write(void)
{
    struct vb_capture *capture;
    int status;

    unlink(FILE_NAME);
    capture = opened(FILE_NAME, 0);
    if (fork() == 0) {
        put(capture, 1, 1, 10);
        _exit(0);
    }
    CHECK(wait(&status) > 0 && status == 0);
    put(capture, 1, 0, 10);
    CHECK_EQ(walk(FILE_NAME, NULL, NULL), 1);
    vb_wrap_capture_close(capture);
}

static pid_t start_writer(uint32_t qp_num, uint32_t count, uint32_t largest)
{
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        struct vb_capture *capture = opened(FILE_NAME, 0);

        for (uint32_t psn = 0; psn < count; ++psn)
            put(capture, qp_num, psn, (psn * 2654435761u >> 16) % (largest + 1));
        _exit(vb_wrap_capture_lost(capture) ? 1 : 0);
    }
    return child;
}

enum { WRITERS = 4 };

static void check_next(const uint8_t *frame, uint32_t captured, uint32_t length, void *argument)
{
    struct vb_bth bth = vb_wire_bth_read(frame + FRONT);
    uint32_t *next = argument;

    (void)captured;
    (void)length;
    CHECK(bth.dest_qp - FIRST_QP < WRITERS);
    CHECK_EQ(bth.psn, next[bth.dest_qp - FIRST_QP]++);
}

static void test_processes_write_at_once(void)
{
    enum { PACKETS = 2000 };
    uint32_t next[WRITERS] = {0};
    int status;

    unlink(FILE_NAME); /* nobody has made the file: one of them does */
    for (uint32_t i = 0; i < WRITERS; ++i)
        start_writer(i, PACKETS, LARGEST);
    for (int i = 0; i < WRITERS; ++i)
        CHECK(wait(&status) > 0 && status == 0);
    CHECK_EQ(walk(FILE_NAME, check_next, next), WRITERS * PACKETS);
}

static void pause_ns(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* Two writers, killed one after the other. False: before one had made the file. */
static bool kill_writers(int round, uint32_t largest)
{
    pid_t doomed[2];
    struct stat file;
    int status;

    unlink(FILE_NAME);
    for (uint32_t i = 0; i < 2; ++i)
        doomed[i] = start_writer(i, UINT32_MAX, largest);
    while (access(FILE_NAME, F_OK))
        pause_ns(100000);
    pause_ns(1000000 + round * 13579);
    for (int i = 0; i < 2; ++i) {
        kill(doomed[i], SIGKILL);
        pause_ns(round % 3 * 200000);
    }
    for (int i = 0; i < 2; ++i)
        CHECK(wait(&status) > 0 && WIFSIGNALED(status));
    CHECK_EQ(stat(FILE_NAME, &file), 0);
    return file.st_size > 0;
}

/* Killed anywhere, beside another writer: the file is whole, in order, to its end. */
static void test_writers_are_killed(void)
{
    enum { FITS_A_PAGE = 3900 };

    for (int round = 0; round < 150; ++round) {
        uint32_t next[WRITERS] = {0};

        if (kill_writers(round, FITS_A_PAGE))
            walk(FILE_NAME, check_next, next);
    }
}

/* Packets of more than a page: whole at the latest when it is opened again. */
static void test_writers_of_large_packets_are_killed(void)
{
    for (int round = 0; round < 150; ++round) {
        uint32_t next[WRITERS] = {0};

        if (!kill_writers(round, LARGEST))
            continue;
        vb_wrap_capture_close(opened(FILE_NAME, 0));
        walk(FILE_NAME, check_next, next);
    }
}

/* As a kill leaves it on file systems that keep pages apart. */
static void test_half_a_block_is_taken_away(void)
{
    struct vb_capture *capture;
    struct stat file;

    unlink(FILE_NAME);
    capture = opened(FILE_NAME, 0);
    put(capture, 1, 0, LARGEST);
    put(capture, 1, 1, LARGEST);
    CHECK(stat(FILE_NAME, &file) == 0 && file.st_size % VB_CAPTURE_PAIR == 0);
    CHECK_EQ(truncate(FILE_NAME, file.st_size - VB_CAPTURE_PAGE), 0);
    put(capture, 1, 2, 10); /* into the room that the packet before the half left */
    CHECK_EQ(walk(FILE_NAME, NULL, NULL), 2);
    CHECK_EQ(vb_wrap_capture_lost(capture), 0);
    put(capture, 1, 3, LARGEST);
    CHECK_EQ(truncate(FILE_NAME, file.st_size - VB_CAPTURE_PAGE), 0);
    vb_wrap_capture_close(capture);
    vb_wrap_capture_close(opened(FILE_NAME, 0));
    CHECK_EQ(walk(FILE_NAME, NULL, NULL), 2);
}

/* ---- what test_tshark.py reads ---- */

static void send_reasons(struct vb_wrap *wrap)
{
    for (int reason = VB_PACKET_NEW; reason <= VB_PACKET_PROBE; ++reason) {
        struct vb_packet packet = {.path = &ipv4,
                                   .qp_num = 17,
                                   .header_length = VB_BTH,
                                   .reason = (uint8_t)reason,
                                   .missing_psn = 40,
                                   .unanswered_us = 420,
                                   .payload_length = 100,
                                   .piece_count = 1,
                                   .piece = {{payload, 100}}};
        struct vb_wrap_out out;

        vb_wire_bth_write(packet.header, &(struct vb_bth){.opcode = VB_OP_SEND_ONLY,
                                                          .pkey = 0xffff,
                                                          .dest_qp = 18,
                                                          .psn = (uint32_t)reason});
        if (vb_wrap_outgoing(wrap, &packet, 0, &out))
            vb_wrap_sent(wrap, &out, 0xc005, (uint16_t)reason, 1000);
        while (vb_wrap_due_out(wrap, 1000, &out))
            vb_wrap_sent(wrap, &out, 0xc005, 0, 1000);
    }
}

static void receive_some(struct vb_wrap *wrap)
{
    static const uint8_t wrong[4] = {1, 2, 3, 4};
    struct vb_wrap_frame facts = {.source_port = 0xc006, .ip_id = 5};
    uint8_t bytes[VB_BTH + 8] = {0};
    struct vb_arrival arrival = {.bytes = bytes, .length = sizeof(bytes)};
    struct vb_wrap_in in;

    vb_wire_bth_write(
        bytes,
        &(struct vb_bth){.opcode = VB_OP_SEND_ONLY, .pkey = 0xffff, .dest_qp = 17, .psn = 100});
    memcpy(arrival.sgid, ipv4.dgid, 16);
    memcpy(arrival.dgid, ipv4.sgid, 16);
    for (int i = 0; i < 3; ++i)
        if (vb_wrap_incoming(wrap, &arrival, &facts, 0, &in))
            vb_wrap_received(wrap, &in, i ? "dropped: no such queue pair" : NULL, 2000);
    facts.icrc = wrong;
    vb_wrap_refused(wrap, &arrival, &facts, "dropped: the ICRC is wrong", 3000);
}

static void write_packets_with_comments(const char *name)
{
    struct vb_capture_config config = {.path = name, .epoch = 1700000000 * UINT64_C(1000000000)};
    struct vb_wrap wrap;

    vb_wrap_init(&wrap);
    CHECK_EQ(vb_wrap_set_capture(&wrap, &config), 0);
    send_reasons(&wrap);
    CHECK_EQ(vb_wrap_set_fault(
                 &wrap,
                 rules_records("drop nth=1; duplicate nth=1; corrupt nth=2; truncate nth=3 to=60;"
                               "delay 500ns nth=4; corrupt dir=in nth=3"),
                 NULL, 0),
             0);
    send_reasons(&wrap);
    receive_some(&wrap);
    vb_wrap_fini(&wrap);
}

static uint32_t write_message(struct vb_capture *capture, struct vb_capture_message message)
{
    static uint32_t psn = 0xfffffe; /* it wraps on the way */
    struct vb_piece pieces[] = {{payload, 100}, {payload + 100, 157}, {payload + 257, 4000}};
    uint32_t count;

    pieces[2].length = message.length > 257 ? message.length - 257 : 0;
    if (message.length < 257)
        pieces[0].length = message.length, pieces[1].length = 0;
    message.qp_num = 0x111;
    message.dest_qp_num = 0x222;
    message.psn = psn;
    message.msn = 5;
    message.piece = pieces;
    message.piece_count = 3;
    message.addr = 0x7f0000001000;
    message.rkey = 0x1234;
    count = vb_wrap_capture_message(capture, &message, psn);
    psn += count;
    return count;
}

static void write_messages(struct vb_capture *capture, const struct vb_path *path)
{
    static const struct {
        enum ibv_wr_opcode opcode;
        uint32_t length;
    } all[] = {{IBV_WR_SEND, 0},
               {IBV_WR_SEND, 1},
               {IBV_WR_SEND_WITH_IMM, 2048},
               {IBV_WR_SEND_WITH_INV, 2049},
               {IBV_WR_RDMA_WRITE, 4000},
               {IBV_WR_RDMA_WRITE, 3},
               {IBV_WR_RDMA_WRITE_WITH_IMM, 1025},
               {IBV_WR_RDMA_READ, 3001},
               {IBV_WR_RDMA_READ, 0},
               {IBV_WR_ATOMIC_CMP_AND_SWP, 8},
               {IBV_WR_ATOMIC_FETCH_AND_ADD, 8},
               {IBV_WR_ATOMIC_WRITE, 8},
               {IBV_WR_FLUSH, 4000}};

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); ++i) {
        struct vb_capture_message message = {.path = path,
                                             .opcode = all[i].opcode,
                                             .length = all[i].length,
                                             .imm = htobe32(0xabcd),
                                             .invalidate_rkey = 0x77,
                                             .compare = 1,
                                             .swap_add = 2,
                                             .original = 3,
                                             .flush = {IBV_FLUSH_GLOBAL, IBV_FLUSH_MR}};

        CHECK(write_message(capture, message) > 0);
    }
}

static void write_all_messages(const char *name)
{
    struct vb_capture *capture = opened(name, 0);
    struct vb_capture_message message = {.path = &ipv4, .length = 300};

    write_messages(capture, &ipv4);
    write_messages(capture, &ipv6);
    message.opcode = IBV_WR_RDMA_READ;
    message.answer = VB_AETH_NAK;
    message.answer_value = VB_NAK_REMOTE_ACCESS;
    CHECK_EQ(write_message(capture, message), 1);
    message.opcode = IBV_WR_SEND;
    message.answer = VB_AETH_RNR;
    CHECK_EQ(write_message(capture, message), 1);
    message.transport = VB_TRANSPORT_UC;
    CHECK_EQ(write_message(capture, message), 1);
    message.transport = VB_TRANSPORT_UD;
    message.qkey = 0x11111111;
    CHECK_EQ(write_message(capture, message), 1);
    message.length = 1025;
    CHECK_EQ(write_message(capture, message), 0);
    message.transport = VB_TRANSPORT_RC;
    message.opcode = IBV_WR_LOCAL_INV;
    CHECK_EQ(write_message(capture, message), 0);
    vb_wrap_capture_close(capture);
}

static void write_large(const char *name)
{
    struct vb_capture *capture = opened(name, 0);

    put(capture, 1, 1, LARGEST);
    vb_wrap_capture_close(capture);
}

/* ---- headers --------------------------------------------------------------------------------- */

static const struct {
    uint8_t dgid[16], mac[6];
} targets[] = {
    {{[10] = 0xff, 0xff, 10, 0x85, 3, 2}, {0x02, 0, 10, 0x85, 3, 2}},
    {{[10] = 0xff, 0xff, 223, 1, 2, 3}, {0x02, 0, 223, 1, 2, 3}},
    {{[10] = 0xff, 0xff, 239, 0x87, 8, 9}, {0x01, 0, 0x5e, 0x07, 8, 9}}, /* RFC 1112, 6.4 */
    {{[10] = 0xff, 0xff, 240, 1, 2, 3}, {0x02, 0, 240, 1, 2, 3}},
    {{0xff, 0x0e, [12] = 1, 2, 3, 4}, {0x33, 0x33, 1, 2, 3, 4}}, /* RFC 2464, 7 */
    {{0x20, 0x01, [11] = 9, 0xe8, 7, 6, 5}, {0x02, 9, 0xe8, 7, 6, 5}},
};

static void check_target(const uint8_t *frame, uint32_t captured, uint32_t length, void *argument)
{
    unsigned *number = argument;

    CHECK(captured == length && captured > 60);
    CHECK_EQ(memcmp(frame, targets[*number].mac, 6), 0);
    CHECK_EQ(frame[6], 0x02); /* from a station's own address */
    CHECK_EQ(frame[12] << 8 | frame[13], targets[*number].dgid[10] ? 0x0800 : 0x86dd);
    ++*number;
}

static void test_addresses_of_each_kind(void)
{
    struct vb_capture *capture = opened(FILE_NAME, 0);
    const unsigned count = sizeof(targets) / sizeof(*targets);
    unsigned number = 0;

    for (unsigned i = 0; i < count; ++i) {
        struct vb_path path = targets[i].dgid[10] ? ipv4 : ipv6;

        memcpy(path.dgid, targets[i].dgid, 16);
        put_on(&path, capture, i, i, 40);
    }
    vb_wrap_capture_close(capture);
    CHECK_EQ(walk(FILE_NAME, check_target, &number), count);
    CHECK_EQ(number, count);
    unlink(FILE_NAME);
}

int main(int argc, char **argv)
{
    fill_payload();
    if (argc == 3) {
        if (strcmp(argv[1], "comments") == 0)
            write_packets_with_comments(argv[2]);
        else if (strcmp(argv[1], "messages") == 0)
            write_all_messages(argv[2]);
        else
            write_large(argv[2]);
        return 0;
    }
    RUN(test_an_empty_capture);
    RUN(test_addresses_of_each_kind);
    RUN(test_a_capture_is_continued);
    RUN(test_every_size_of_a_packet);
    RUN(test_bytes_to_keep);
    RUN(test_a_virtual_payload_is_a_length);
    RUN(test_refused_files);
    RUN(test_second_pages);
    RUN(test_the_first_page);
    RUN(test_a_capture_is_renewed);
    RUN(test_packets_are_numbered);
    RUN(test_a_file_that_may_not_grow);
    RUN(test_a_lock_that_is_never_released);
    RUN(test_a_forked_child_does_not_write);
    RUN(test_processes_write_at_once);
    RUN(test_half_a_block_is_taken_away);
    RUN(test_writers_are_killed);
    RUN(test_writers_of_large_packets_are_killed);
    return 0;
}
