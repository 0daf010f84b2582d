// SPDX-License-Identifier: Apache-2.0
#include "port/wrap/capture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "port/wrap/capture_file.h"
#include "port/wrap/pcapng.h"

enum { PATIENCE = 500, FRAME_AT = 28, COMMENT = 320 };

_Static_assert(VB_CAPTURE_BYTES_MOST + COMMENT + 64 < VB_CAPTURE_BLOCK, "a packet fits a block");

struct vb_capture {
    int fd;
    pid_t owner;
    uint32_t bytes;
    uint64_t epoch;
    pthread_mutex_t mutex;
    unsigned patience; /* 0 after a wait in vain, until the lock is free again */
    _Atomic uint64_t lost;
    uint8_t block[VB_CAPTURE_PAIR];
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

uint64_t vb_capture_epoch_of_monotonic(void)
{
    return clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
}

const char *vb_capture_problem(int error)
{
    switch (error) {
    case -EINVAL:
        return "it is not a regular file";
    case -EBADMSG:
        return "it exists and is not a capture that Verbena wrote";
    case -ETIMEDOUT:
        return "another process keeps it locked";
    case -ERANGE:
        return "the number of bytes to keep is out of range";
    default:
        return strerror(-error);
    }
}

int vb_capture_open(const struct vb_capture_config *config, struct vb_capture **capture)
{
    struct vb_capture *made;
    int fd;

    if (config->bytes &&
        (config->bytes < VB_CAPTURE_BYTES_LEAST || config->bytes > VB_CAPTURE_BYTES_MOST))
        return -ERANGE;
    fd = vb_capture_file_open(config->path);
    if (fd < 0)
        return fd;
    made = calloc(1, sizeof(*made));
    if (!made) {
        close(fd);
        return -ENOMEM;
    }
    made->fd = fd;
    made->owner = getpid();
    made->bytes = config->bytes ? config->bytes : VB_CAPTURE_BYTES_MOST;
    made->epoch = config->epoch;
    made->patience = PATIENCE;
    pthread_mutex_init(&made->mutex, NULL);
    *capture = made;
    return 0;
}

void vb_capture_close(struct vb_capture *capture)
{
    if (!capture)
        return;
    close(capture->fd);
    pthread_mutex_destroy(&capture->mutex);
    free(capture);
}

uint64_t vb_capture_lost(const struct vb_capture *capture)
{
    return atomic_load_explicit(&capture->lost, memory_order_relaxed);
}

/* The frame's bytes are in the block. */
static void write_block(struct vb_capture *capture, struct vb_pcapng_packet *packet)
{
    int error = vb_capture_file_add(capture->fd, capture->block,
                                    vb_pcapng_packet(capture->block, packet), capture->patience);

    capture->patience = error == -ETIMEDOUT ? 0 : PATIENCE;
    if (error)
        atomic_fetch_add_explicit(&capture->lost, 1, memory_order_relaxed);
}

/* Puts a frame's first bytes there, as far as there is room: how many; `*length`: of all of it. */
typedef uint32_t put_frame(const void *frame, uint8_t *to, uint32_t room, uint32_t *length);

static void add_frame(struct vb_capture *capture, put_frame *put, const void *frame,
                      struct vb_pcapng_packet *packet)
{
    char words[COMMENT];
    int error = errno;

    if (getpid() != capture->owner)
        return;
    if (packet->comment) {
        snprintf(words, sizeof(words), "%s", packet->comment);
        packet->comment = words;
    }
    pthread_mutex_lock(&capture->mutex);
    packet->time += capture->epoch;
    packet->captured = put(frame, capture->block + FRAME_AT, capture->bytes, &packet->length);
    write_block(capture, packet);
    pthread_mutex_unlock(&capture->mutex);
    errno = error;
}

static struct vb_pcapng_packet packet_of(enum vb_wrap_direction direction, const char *comment,
                                         uint64_t now)
{
    return (struct vb_pcapng_packet){.time = now,
                                     .direction = direction == VB_WRAP_OUT ? VB_PCAPNG_OUTBOUND
                                                                           : VB_PCAPNG_INBOUND,
                                     .comment = comment};
}

static uint32_t put_roce(const void *frame, uint8_t *to, uint32_t room, uint32_t *length)
{
    return (uint32_t)vb_frame_write(frame, to, room, length);
}

static uint32_t put_bytes(const void *frame, uint8_t *to, uint32_t room, uint32_t *length)
{
    const struct vb_capture_bytes *given = frame;
    uint32_t count = given->count < room ? given->count : room;

    memcpy(to, given->bytes, count);
    *length = given->length;
    return count;
}

void vb_capture_frame(struct vb_capture *capture, const struct vb_frame *frame,
                      enum vb_wrap_direction direction, const char *comment, uint64_t now)
{
    struct vb_pcapng_packet packet = packet_of(direction, comment, now);

    add_frame(capture, put_roce, frame, &packet);
}

void vb_capture_bytes(struct vb_capture *capture, const struct vb_capture_bytes *frame,
                      enum vb_wrap_direction direction, const char *comment, uint64_t now)
{
    struct vb_pcapng_packet packet = packet_of(direction, comment, now);

    add_frame(capture, put_bytes, frame, &packet);
}

/* ---- packets ---- */

const char *vb_packet_reason_text(enum vb_packet_reason reason)
{
    static const char *const texts[] = {
        [VB_PACKET_NEW] = NULL,
        [VB_PACKET_AFTER_TIMEOUT] = "retransmitted: no acknowledgement within the timeout",
        [VB_PACKET_AFTER_SEQUENCE_NAK] =
            "retransmitted: the responder missed a packet (NAK: PSN sequence error)",
        [VB_PACKET_AFTER_RNR] = "retransmitted: the responder had no receive request (RNR NAK)",
        [VB_PACKET_AFTER_LOST_RESPONSE] = "retransmitted: a response is missing (implied NAK)",
        [VB_PACKET_REPLAYED_RESPONSE] = "sent again: the requester repeated its request",
    };

    return (size_t)reason < sizeof(texts) / sizeof(*texts) ? texts[reason] : NULL;
}

static const char *join(char *words, size_t size, const char *first, const char *second)
{
    if (!first || !second || !*second)
        return first && *first ? first : second;
    snprintf(words, size, "%s; %s", first, second);
    return words;
}

void vb_capture_packet(struct vb_capture *capture, const struct vb_packet *packet,
                       const struct vb_wrap_frame *facts, uint32_t icrc_flip, const char *note,
                       uint64_t now)
{
    static const uint8_t zeros[4];
    const struct vb_path *path = packet->path;
    const char *reason = vb_packet_reason_text((enum vb_packet_reason)packet->reason);
    struct vb_frame frame = {.flow_label = path->flow_label,
                             .traffic_class = path->traffic_class,
                             .hop_limit = path->hop_limit,
                             .source_port = facts->source_port,
                             .ip_id = facts->ip_id,
                             .may_fragment = facts->may_fragment,
                             .icrc_flip = icrc_flip};
    char words[COMMENT];

    memcpy(frame.sgid, path->sgid, sizeof(frame.sgid));
    memcpy(frame.dgid, path->dgid, sizeof(frame.dgid));
    vb_frame_add(&frame, packet->header, packet->header_length);
    for (uint32_t i = 0; i < packet->piece_count; ++i)
        vb_frame_add(&frame, packet->piece[i].bytes, packet->piece[i].length);
    vb_frame_add(&frame, zeros, packet->pad);
    vb_capture_frame(capture, &frame, VB_WRAP_OUT, join(words, sizeof(words), reason, note), now);
}

void vb_capture_arrival(struct vb_capture *capture, const struct vb_arrival *arrival,
                        const struct vb_wrap_frame *facts, uint32_t icrc_flip, const char *note,
                        uint64_t now)
{
    struct vb_frame frame = {.flow_label = arrival->flow_label,
                             .traffic_class = arrival->traffic_class,
                             .hop_limit = arrival->hop_limit,
                             .source_port = facts->source_port,
                             .ip_id = facts->ip_id,
                             .may_fragment = facts->may_fragment,
                             .icrc = facts->icrc,
                             .icrc_flip = icrc_flip};

    memcpy(frame.sgid, arrival->sgid, sizeof(frame.sgid));
    memcpy(frame.dgid, arrival->dgid, sizeof(frame.dgid));
    vb_frame_add(&frame, arrival->bytes, arrival->length);
    vb_frame_add(&frame, NULL, arrival->virtual_payload);
    vb_capture_frame(capture, &frame, VB_WRAP_IN, note, now);
}
