// SPDX-License-Identifier: Apache-2.0
/*
 * Completion channels: creating and destroying them, writing and reading their records. Any thread
 * writes to a channel; programs read from it by ibv_get_cq_event. A record names a CQ and its
 * generation, so a record of a destroyed CQ is skipped.
 */
#include "hca/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "hca/cq.h"
#include "hca/lock.h"
#include "hca/users.h"
#include "hca/vigil.h"
#include "memory/descriptor.h"

static void channel_release(struct vb_object *object)
{
    struct vb_channel *channel =
        (struct vb_channel *)((char *)object - offsetof(struct vb_channel, object));

    channel->ibv.refcnt = 0;
    vb_channel_destroy(channel);
}

int vb_channel_create(struct vb_context *context, struct vb_channel **channel)
{
    struct vb_channel *made = calloc(1, sizeof(*made));
    struct vb_adapter *adapter = context->adapter;
    int ends[2], error;

    if (!made)
        return -ENOMEM;
    error = vb_memory_descriptor_pipe(ends);
    if (error) {
        free(made);
        return error;
    }
    vb_lock_take(&adapter->mutex);
    made->serial = ++adapter->channel_serial;
    vb_lock_release(&adapter->mutex);
    /* A producer never waits for a reader. */
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    made->ibv.context = context->ibv;
    made->ibv.fd = ends[0];
    made->write_fd = ends[1];
    made->context = context;
    vb_object_add(context, &made->object, channel_release);
    *channel = made;
    return 0;
}

int vb_channel_destroy(struct vb_channel *channel)
{
    if (channel->ibv.refcnt)
        return vb_decline_busy_channel(channel);
    vb_object_remove(channel->context, &channel->object);
    close(channel->ibv.fd);
    close(channel->write_fd);
    free(channel->ring);
    vb_object_free(&channel->object, channel);
    return 0;
}

bool vb_channel_write(int write_fd, uint32_t cq, uint32_t generation)
{
    struct vb_channel_record record = {.cq = cq, .generation = generation};

    return write(write_fd, &record, sizeof(record)) == sizeof(record);
}

/* ---- records that are kept ---- */

enum { KEPT_AT_FIRST = 64, KEPT_MAX = 65536 / sizeof(struct vb_channel_record) };

/* Twice the room; the oldest record comes first again. */
static bool channel_grow(struct vb_channel *channel)
{
    uint32_t room = channel->kept_room ? 2 * channel->kept_room : KEPT_AT_FIRST;
    struct vb_channel_record *grown =
        room > KEPT_MAX ? NULL : malloc(room * sizeof(struct vb_channel_record));

    if (!grown)
        return false;
    for (uint32_t i = 0; i < channel->kept; ++i)
        grown[i] = channel->ring[(channel->first_kept + i) & (channel->kept_room - 1)];
    free(channel->ring);
    channel->ring = grown;
    channel->kept_room = room;
    channel->first_kept = 0;
    return true;
}

static bool channel_has_room(struct vb_channel *channel)
{
    return VB_LIKELY(channel->kept < channel->kept_room) || channel_grow(channel);
}

bool vb_channel_add(struct vb_channel *channel, uint32_t cq, uint32_t generation)
{
    if (!channel_has_room(channel))
        return false;
    channel->ring[(channel->first_kept + channel->kept++) & (channel->kept_room - 1)] =
        (struct vb_channel_record){.cq = cq, .generation = generation};
    return true;
}

static bool take_kept(struct vb_channel *channel, struct vb_channel_record *record)
{
    if (!channel->kept)
        return false;
    *record = channel->ring[channel->first_kept++ & (channel->kept_room - 1)];
    --channel->kept;
    return true;
}

static bool is_readable(const struct vb_channel *channel)
{
    struct pollfd entry = {.fd = channel->ibv.fd, .events = POLLIN};

    return poll(&entry, 1, 0) == 1;
}

/* Moves the records of the pipe to `ring`. False: there is no room for the rest. */
static bool empty_pipe(struct vb_channel *channel)
{
    struct vb_channel_record record;

    while (is_readable(channel)) {
        if (!channel_has_room(channel) ||
            read(channel->ibv.fd, &record, sizeof(record)) != sizeof(record))
            return false;
        vb_channel_add(channel, record.cq, record.generation);
    }
    return true;
}

int vb_channel_keep(struct vb_channel *channel, bool keep)
{
    struct vb_channel_record record;

    channel->keeps = keep && empty_pipe(channel);
    while (!channel->keeps && take_kept(channel, &record))
        vb_channel_write(channel->write_fd, record.cq, record.generation);
    return channel->keeps == keep ? 0 : -ENOMEM;
}

/* ---- reading ---- */

static uint64_t microseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

enum { SPINS_IN_VAIN = 8, SKIPPED_WAITS = 16 };

/*
 * Spins before a wait sleeps, since waking a sleeping core takes tens of microseconds. Where the
 * last SPINS_IN_VAIN spins saw no event, only every 16th wait spins, to see whether that has
 * changed.
 */
static void spin(struct vb_channel *channel, unsigned spin_us)
{
    struct pollfd readable = {.fd = channel->ibv.fd, .events = POLLIN};
    uint64_t end = microseconds() + spin_us;

    if (channel->vain_spins >= SPINS_IN_VAIN && ++channel->waits % SKIPPED_WAITS)
        return;
    while (poll(&readable, 1, 0) == 0) {
        if (microseconds() >= end) {
            ++channel->vain_spins;
            return;
        }
        vb_pause();
    }
    channel->vain_spins = 0;
}

static bool read_record(struct vb_channel *channel, struct vb_channel_record *record)
{
    struct vb_vigil vigil;
    ssize_t length;

    vb_vigil_begin(&vigil, channel);
    length = read(channel->ibv.fd, record, sizeof(*record));
    vb_vigil_end(&vigil);
    return length == sizeof(*record);
}

int vb_channel_wait(struct vb_channel *channel, unsigned spin_us, struct vb_cq **cq)
{
    struct vb_adapter *adapter = channel->context->adapter;
    struct vb_channel_record record;

    for (;;) {
        struct vb_cq *found;

        if (channel->keeps) {
            if (!take_kept(channel, &record))
                return -EAGAIN;
        } else {
            if (spin_us)
                spin(channel, spin_us);
            if (!read_record(channel, &record))
                return errno ? -errno : -EIO;
        }
        channel->taken += adapter->calls->written != NULL;
        if (VB_UNLIKELY(atomic_load(&adapter->self.header->events_missed)))
            vb_cq_notice_missed(adapter);
        vb_lock_take(&adapter->mutex);
        found = record.cq < VB_MAX_CQ ? adapter->cqs[record.cq] : NULL;
        if (found && found->generation == record.generation && found->channel == channel) {
            ++found->events_read;
            vb_lock_release(&adapter->mutex);
            if (VB_UNLIKELY(found->late))
                vb_cq_repeat_event(found);
            *cq = found;
            return 0;
        }
        vb_lock_release(&adapter->mutex); /* that CQ was destroyed meanwhile: the next record */
    }
}
