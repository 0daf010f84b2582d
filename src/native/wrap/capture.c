// SPDX-License-Identifier: Apache-2.0
/*
 * A capture: packets become frames (frame.h), frames become blocks (pcapng.h), and those are added
 * to the file (capture_file.h). wrap.c and capture_message.c call it. Only the process that opened
 * a capture writes to it.
 */
#include "wrap/capture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lock/mutex.h"
#include "wrap/capture_comment.h"
#include "wrap/capture_file.h"
#include "wrap/pcapng.h"

enum { PATIENCE = 500, FRAME_AT = 28, COMMENT = 320, REASON = COMMENT / 2 };

_Static_assert(VB_CAPTURE_BYTES_MOST + COMMENT + 64 < VB_CAPTURE_BLOCK, "a packet fits a block");

struct vb_capture {
    int fd;
    pid_t owner;
    uint32_t bytes;
    uint64_t epoch;
    struct vb_mutex mutex;
    unsigned patience; /* ms: how long the file's lock is waited for; 0 after it was waited for in
                          vain */
    _Atomic uint64_t lost;
    void (*failed)(int error); /* called under the mutex; NULL: no call */
    uint8_t block[VB_CAPTURE_PAIR];
    struct vb_capture_sent sent[VB_CAPTURE_SENT]; /* untouched pages of it take no memory */
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

uint64_t vb_wrap_capture_epoch_of_monotonic(void)
{
    return clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
}

const char *vb_wrap_capture_problem(int error)
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

int vb_wrap_capture_open(const struct vb_capture_config *config, struct vb_capture **capture)
{
    struct vb_capture *made;
    int fd;

    if (config->bytes &&
        (config->bytes < VB_CAPTURE_BYTES_LEAST || config->bytes > VB_CAPTURE_BYTES_MOST))
        return -ERANGE;
    fd = vb_wrap_capture_file_open(config->path);
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
    vb_lock_init(&made->mutex, VB_RANK_CAPTURE);
    *capture = made;
    return 0;
}

void vb_wrap_capture_close(struct vb_capture *capture)
{
    if (!capture)
        return;
    close(capture->fd);
    vb_lock_destroy(&capture->mutex);
    free(capture);
}

void vb_wrap_capture_tell(struct vb_capture *capture, void (*failed)(int error))
{
    vb_lock_take(&capture->mutex);
    capture->failed = failed;
    vb_lock_release(&capture->mutex);
}

uint64_t vb_wrap_capture_lost(const struct vb_capture *capture)
{
    return atomic_load_explicit(&capture->lost, memory_order_relaxed);
}

/*
 * Writes the block, in which the frame's bytes are. Returns the packet's number in the file; 0: it
 * could not be written.
 */
static uint32_t write_block(struct vb_capture *capture, struct vb_pcapng_packet *packet)
{
    uint32_t number = 0;
    int error = vb_wrap_capture_file_add(capture->fd, capture->block,
                                         vb_wrap_pcapng_packet(capture->block, packet),
                                         capture->patience, &number);

    capture->patience = error == -ETIMEDOUT ? 0 : PATIENCE;
    if (!error)
        return number;
    if (!atomic_fetch_add_explicit(&capture->lost, 1, memory_order_relaxed) && capture->failed)
        capture->failed(error);
    return 0;
}

/*
 * Writes a frame's first bytes, at most `room`, and returns how many; `*length` is that of the
 * whole frame.
 */
typedef uint32_t put_frame(const void *frame, uint8_t *to, uint32_t room, uint32_t *length);

static uint32_t add_frame(struct vb_capture *capture, put_frame *put, const void *frame,
                          struct vb_pcapng_packet *packet)
{
    char words[COMMENT];
    int error = errno;
    uint32_t number;

    if (getpid() != capture->owner)
        return 0;
    if (packet->comment) {
        snprintf(words, sizeof(words), "%s", packet->comment);
        packet->comment = words;
    }
    vb_lock_take(&capture->mutex);
    packet->time += capture->epoch;
    packet->captured = put(frame, capture->block + FRAME_AT, capture->bytes, &packet->length);
    number = write_block(capture, packet);
    vb_lock_release(&capture->mutex);
    errno = error;
    return number;
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
    return (uint32_t)vb_wrap_frame_write(frame, to, room, length);
}

static uint32_t put_bytes(const void *frame, uint8_t *to, uint32_t room, uint32_t *length)
{
    const struct vb_capture_bytes *given = frame;
    uint32_t count = given->count < room ? given->count : room;

    memcpy(to, given->bytes, count);
    *length = given->length;
    return count;
}

uint32_t vb_wrap_capture_frame(struct vb_capture *capture, const struct vb_frame *frame,
                               enum vb_wrap_direction direction, const char *comment, uint64_t now)
{
    struct vb_pcapng_packet packet = packet_of(direction, comment, now);

    return add_frame(capture, put_roce, frame, &packet);
}

void vb_wrap_capture_bytes(struct vb_capture *capture, const struct vb_capture_bytes *frame,
                           enum vb_wrap_direction direction, const char *comment, uint64_t now)
{
    struct vb_pcapng_packet packet = packet_of(direction, comment, now);

    add_frame(capture, put_bytes, frame, &packet);
}

/* ---- packets ---- */

static const char *capture_join(char *words, size_t size, const char *first, const char *second)
{
    if (!first || !second || !*second)
        return first && *first ? first : second;
    snprintf(words, size, "%s; %s", first, second);
    return words;
}

void vb_wrap_capture_packet(struct vb_capture *capture, const struct vb_packet *packet,
                            const struct vb_wrap_frame *facts, uint32_t icrc_flip, const char *note,
                            uint64_t now)
{
    static const uint8_t zeros[4];
    const struct vb_path *path = packet->path;
    struct vb_frame frame = {.flow_label = path->flow_label,
                             .traffic_class = path->traffic_class,
                             .hop_limit = path->hop_limit,
                             .source_port = facts->source_port,
                             .ip_id = facts->ip_id,
                             .may_fragment = facts->may_fragment,
                             .icrc_flip = icrc_flip};

    memcpy(frame.sgid, path->sgid, sizeof(frame.sgid));
    memcpy(frame.dgid, path->dgid, sizeof(frame.dgid));
    vb_wrap_frame_add(&frame, packet->header, packet->header_length);
    for (uint32_t i = 0; i < packet->piece_count; ++i)
        vb_wrap_frame_add(&frame, packet->piece[i].bytes, packet->piece[i].length);
    vb_wrap_frame_add(&frame, zeros, packet->pad);
    vb_wrap_capture_outgoing(capture, packet, &frame, note, now);
}

void vb_wrap_capture_outgoing(struct vb_capture *capture, const struct vb_packet *packet,
                              const struct vb_frame *frame, const char *note, uint64_t now)
{
    char reason[REASON], words[COMMENT];
    uint32_t number;
    bool has_reason;

    if (getpid() != capture->owner) /* in a forked child the mutex may be held for ever */
        return;
    vb_lock_take(&capture->mutex);
    has_reason = vb_wrap_comment_again(capture->sent, packet, reason, sizeof(reason));
    vb_lock_release(&capture->mutex);
    if (!has_reason)
        has_reason =
            vb_wrap_comment_nak(packet->header, packet->header_length, reason, sizeof(reason));
    number = vb_wrap_capture_frame(
        capture, frame, VB_WRAP_OUT,
        capture_join(words, sizeof(words), has_reason ? reason : NULL, note), now);
    vb_lock_take(&capture->mutex);
    vb_wrap_capture_note_sent(capture->sent, packet, number);
    vb_lock_release(&capture->mutex);
}

void vb_wrap_capture_arrival(struct vb_capture *capture, const struct vb_arrival *arrival,
                             const struct vb_wrap_frame *facts, uint32_t icrc_flip,
                             const char *note, uint64_t now)
{
    struct vb_frame frame = {.flow_label = arrival->flow_label,
                             .traffic_class = arrival->traffic_class,
                             .hop_limit = arrival->hop_limit,
                             .source_port = facts->source_port,
                             .ip_id = facts->ip_id,
                             .may_fragment = facts->may_fragment,
                             .icrc = facts->icrc,
                             .icrc_flip = icrc_flip};
    char nak[REASON], words[COMMENT];

    memcpy(frame.sgid, arrival->sgid, sizeof(frame.sgid));
    memcpy(frame.dgid, arrival->dgid, sizeof(frame.dgid));
    vb_wrap_frame_add(&frame, arrival->bytes, arrival->length);
    vb_wrap_frame_add(&frame, NULL, arrival->virtual_payload);
    if (vb_wrap_comment_nak(arrival->bytes, arrival->length, nak, sizeof(nak)))
        note = capture_join(words, sizeof(words), nak, note);
    vb_wrap_capture_frame(capture, &frame, VB_WRAP_IN, note, now);
}
