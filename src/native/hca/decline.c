// SPDX-License-Identifier: Apache-2.0
/*
 * The record of why calls were refused, and the sentence that is made of it. Code that refuses a
 * call adds to it (decline.h); dropin reads it in the same thread. A context keeps the latest
 * records, one for each thread, under the lock DECLINES.
 */
#include "hca/decline.h"

#include <arpa/inet.h>
#include <endian.h>
#include <string.h>

#include "hca/adapter.h"
#include "hca/names.h"

/* The thread's latest record, or NULL. Under the mutex. */
static struct vb_declined *decline_latest(struct vb_declines *declines)
{
    pthread_t self = pthread_self();

    for (uint32_t i = 0; i < VB_DECLINES; ++i) {
        struct vb_declined *entry = &declines->entry[(declines->next - 1 - i) % VB_DECLINES];

        if (entry->error && pthread_equal(entry->thread, self))
            return entry;
    }
    return NULL;
}

static void decline_keep(struct vb_declines *declines, int error, const char *because,
                         const uint64_t number[VB_DECLINE_NUMBERS])
{
    struct vb_declined *entry = &declines->entry[declines->next++ % VB_DECLINES];

    *entry = (struct vb_declined){
        .thread = pthread_self(), .error = -error, .because = because, .closed = !because};
    if (number)
        memcpy(entry->number, number, sizeof(entry->number));
}

int vb_decline_with(struct vb_context *context, int error, const char *because,
                    const uint64_t number[VB_DECLINE_NUMBERS])
{
    if (!context) /* a forked child's: it has no adapter */
        return error;
    vb_lock_take(&context->declines.mutex);
    decline_keep(&context->declines, error, because, number);
    vb_lock_release(&context->declines.mutex);
    return error;
}

void vb_decline_move(struct vb_context *from, struct vb_context *to, int error)
{
    struct vb_declined moved = {0}, *entry;

    vb_lock_take(&from->declines.mutex);
    entry = decline_latest(&from->declines);
    if (entry && entry->error == -error && !entry->closed) {
        moved = *entry;
        entry->closed = true;
    }
    vb_lock_release(&from->declines.mutex);
    if (moved.because)
        vb_decline_with(to, error, moved.because, moved.number);
}

void vb_decline_close(struct vb_context *context, int error)
{
    struct vb_declines *declines = &context->declines;
    struct vb_declined *entry;

    vb_lock_take(&declines->mutex);
    entry = decline_latest(declines);
    if (entry && entry->error == -error && !entry->closed)
        entry->closed = true;
    else
        decline_keep(declines, error, NULL, NULL);
    vb_lock_release(&declines->mutex);
}

/* The two halves of a GID, in host byte order. */
static void say_gid(struct vb_text *text, const uint64_t half[2])
{
    uint64_t raw[2] = {htobe64(half[0]), htobe64(half[1])};
    char name[INET6_ADDRSTRLEN] = "";

    inet_ntop(AF_INET6, raw, name, sizeof(name));
    vb_text_add(text, "%s", name);
}

/* Writes the sentence, with each {digit} or {digit letter} replaced by its number. */
static int render(const struct vb_declined *declined, char *out, size_t size)
{
    struct vb_text text = {.at = out, .left = size};
    const char *at = declined->because, *open;

    while ((open = strchr(at, '{')) && open[1] >= '0' && open[1] < '0' + VB_DECLINE_NUMBERS) {
        char as = open[2] == '}' ? '\0' : open[2];

        vb_text_add(&text, "%.*s", (int)(open - at), at);
        if (as == 'g' && open[1] - '0' + 1 < VB_DECLINE_NUMBERS)
            say_gid(&text, &declined->number[open[1] - '0']);
        else
            vb_say_number(&text, as, declined->number[open[1] - '0']);
        at = open + (as ? 4 : 3);
    }
    vb_text_add(&text, "%s", at);
    return text.length;
}

int vb_decline_text(struct vb_context *context, int error, char *text, size_t size)
{
    struct vb_declines *declines = &context->declines;
    struct vb_declined declined = {0}, *entry;

    vb_lock_take(&declines->mutex);
    entry = decline_latest(declines);
    if (entry && entry->error == (error < 0 ? -error : error)) {
        entry->closed = true;
        declined = *entry;
    }
    vb_lock_release(&declines->mutex);
    return declined.because ? render(&declined, text, size) : 0;
}
