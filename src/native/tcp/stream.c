// SPDX-License-Identifier: Apache-2.0
/* The segments of a socket's stream, as a ring of the offsets at which they begin (stream.h). */
#include "tcp/stream.h"

#include <errno.h>
#include <stdlib.h>

enum { FIRST_ROOM = 16 };

void vb_tcp_stream_free(struct vb_tcp_stream *stream)
{
    free(stream->begin);
}

/* The bytes of the next segment, as far as the window lets them leave. */
static uint32_t stream_next_length(const struct vb_tcp_stream *stream, uint32_t mss)
{
    uint64_t left = stream->written - stream->cut, usable = stream->edge - stream->cut;
    uint64_t length = left < usable ? left : usable;

    return length < mss ? (uint32_t)length : mss;
}

/* A window that is not open for a full segment is used only if nothing is in flight: otherwise an
 * acknowledgement will open it (RFC 9293, 3.8.6.2.1). */
bool vb_tcp_stream_has_segment(const struct vb_tcp_stream *stream, uint32_t mss, uint64_t first)
{
    uint64_t left = stream->written - stream->cut;
    uint32_t length = stream_next_length(stream, mss);

    if (!left)
        return stream->ended && !stream->has_end;
    if (length == mss)
        return true;
    if (length < left)
        return length && first == stream->next;
    return stream->no_delay || stream->ended || stream->small <= first;
}

static int stream_make_room(struct vb_tcp_stream *stream, uint64_t first)
{
    uint32_t room = stream->room ? 2 * stream->room : FIRST_ROOM;
    uint64_t *grown;

    if (stream->next - first < stream->room)
        return 0;
    grown = room ? malloc(room * sizeof(*grown)) : NULL;
    if (!grown)
        return -ENOMEM;
    for (uint64_t i = first; i < stream->next; ++i)
        grown[i & (room - 1)] = stream->begin[i & (stream->room - 1)];
    for (uint64_t i = stream->next; i < first + room; ++i)
        grown[i & (room - 1)] = stream->cut;
    free(stream->begin);
    stream->begin = grown;
    stream->room = room;
    return 0;
}

int vb_tcp_stream_cut(struct vb_tcp_stream *stream, uint32_t mss, uint64_t first,
                      struct vb_tcp_segment *segment)
{
    if (stream_make_room(stream, first))
        return -ENOMEM;
    segment->number = stream->next++;
    segment->length = stream_next_length(stream, mss);
    stream->begin[segment->number & (stream->room - 1)] = stream->cut;
    stream->cut += segment->length;
    stream->has_end = segment->last = stream->ended && stream->cut == stream->written;
    if (segment->length < mss)
        stream->small = stream->next;
    return 0;
}

uint64_t vb_tcp_stream_offset(const struct vb_tcp_stream *stream, uint64_t segment)
{
    if (segment >= stream->next)
        return stream->cut;
    if (segment + stream->room < stream->next)
        return stream->acked;
    return stream->begin[segment & (stream->room - 1)];
}

void vb_tcp_stream_recall(const struct vb_tcp_stream *stream, struct vb_tcp_segment *segment)
{
    uint64_t begin = vb_tcp_stream_offset(stream, segment->number);

    segment->length = (uint32_t)(vb_tcp_stream_offset(stream, segment->number + 1) - begin);
    segment->last = stream->has_end && segment->number + 1 == stream->next;
}

void vb_tcp_stream_acked(struct vb_tcp_stream *stream, uint64_t first, uint64_t window)
{
    uint64_t acked = vb_tcp_stream_offset(stream, first);

    if (acked > stream->acked)
        stream->acked = acked;
    if (acked + window > stream->edge) /* an old acknowledgement moves nothing */
        stream->edge = acked + window;
}

bool vb_tcp_stream_is_shut(const struct vb_tcp_stream *stream, uint64_t first)
{
    return first == stream->next && stream->cut < stream->written && stream->edge <= stream->cut;
}

bool vb_tcp_stream_is_done(const struct vb_tcp_stream *stream, uint64_t first)
{
    return stream->has_end && first == stream->next;
}
