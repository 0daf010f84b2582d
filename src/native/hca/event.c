// SPDX-License-Identifier: Apache-2.0
/*
 * Asynchronous events: each context has a queue of them behind its async_fd. Any thread raises
 * events; programs read and acknowledge them. An object is destroyed only when its events are
 * acknowledged, so its destroyer waits here, under the lock CONTEXT.
 */
#include "hca/event.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hca/adapter.h"
#include "hca/host_calls.h"
#include "hca/overdue.h"

static void event_append(struct vb_event **list, struct vb_event *event)
{
    while (*list)
        list = &(*list)->next;
    event->next = NULL;
    *list = event;
}

/* Unlinks the first event of the element. */
static struct vb_event *unlink_first(struct vb_event **list, const void *element)
{
    for (; *list; list = &(*list)->next)
        if ((const void *)(*list)->event.element.cq == element) {
            struct vb_event *found = *list;
            *list = found->next;
            return found;
        }
    return NULL;
}

/* Makes the descriptor readable. Under the mutex, as the next function. */
static void count(const struct vb_context *context)
{
    eventfd_write(context->async_fd, 1); /* where the counter is full, it is readable anyway */
}

/*
 * Takes back the count of an event that was dropped, so that the program does not find a readable
 * descriptor and then block. Before Linux 5.8 an eventfd cannot be read without waiting, and then
 * the count stays.
 */
static void discount(const struct vb_context *context)
{
    uint64_t one;
    struct iovec into = {&one, sizeof(one)};

    if (preadv2(context->async_fd, &into, 1, -1, RWF_NOWAIT) < 0)
        return; /* a reader has taken the count, and finds no event */
}

static void queue(struct vb_context *context, const struct ibv_async_event *what, bool is_awaited)
{
    struct vb_event *event = calloc(1, sizeof(*event));

    if (!event)
        return;
    event->event = *what;
    event->is_awaited = is_awaited;
    vb_lock_take(&context->mutex);
    event_append(&context->events, event);
    count(context);
    vb_lock_release(&context->mutex);
    if (context->adapter->calls->readable)
        context->adapter->calls->readable(context, context->async_fd);
}

void vb_event_raise(struct vb_context *context, enum ibv_event_type type, void *element)
{
    queue(context, &(struct ibv_async_event){.event_type = type, .element.cq = element}, true);
}

void vb_event_raise_port(struct vb_context *context, enum ibv_event_type type, int port_num)
{
    queue(context, &(struct ibv_async_event){.event_type = type, .element.port_num = port_num},
          false);
}

/* Takes the oldest event, and moves it to those that wait for their acknowledgement. */
static bool event_take(struct vb_context *context, struct ibv_async_event *event)
{
    struct vb_event *next;

    vb_lock_take(&context->mutex);
    next = context->events;
    if (next) {
        context->events = next->next;
        *event = next->event;
        if (next->is_awaited)
            event_append(&context->unacked, next);
        else
            free(next);
    }
    vb_lock_release(&context->mutex);
    return next != NULL;
}

int vb_event_get(struct vb_context *context, struct ibv_async_event *event)
{
    /* The event may have been dropped since it was counted, with its object: wait for the next. */
    for (;;) {
        uint64_t count;

        /* Never 0, since `event` is not written. */
        if (read(context->async_fd, &count, sizeof(count)) < 0)
            return errno > 0 ? -errno : -EIO;
        if (event_take(context, event))
            return 0;
    }
}

void vb_event_ack(struct vb_context *context, struct ibv_async_event *event)
{
    vb_lock_take(&context->mutex);
    free(unlink_first(&context->unacked, event->element.cq));
    pthread_cond_broadcast(&context->acked);
    vb_lock_release(&context->mutex);
}

static unsigned count_unacked(const struct vb_context *context, const void *element)
{
    unsigned count = 0;

    for (const struct vb_event *event = context->unacked; event; event = event->next)
        count += (const void *)event->event.element.cq == element;
    return count;
}

void vb_event_retire(struct vb_context *context, const void *element)
{
    struct vb_event *event;
    bool told = false;
    unsigned unacked;

    vb_lock_take(&context->mutex);
    while ((event = unlink_first(&context->events, element))) {
        free(event);
        discount(context);
    }
    while ((unacked = count_unacked(context, element)))
        if (told)
            vb_lock_wait(&context->acked, &context->mutex);
        else if ((told = vb_overdue_wait(&context->acked, &context->mutex.mutex)))
            vb_overdue_acks(context->adapter, "QP, CQ or SRQ", unacked, "ibv_ack_async_event");
    vb_lock_release(&context->mutex);
}

void vb_event_drop_all(struct vb_context *context)
{
    struct vb_event *next;

    vb_lock_take(&context->mutex); /* a peer's death may raise an event at this moment */
    for (struct vb_event *event = context->events; event; event = next) {
        next = event->next;
        free(event);
    }
    for (struct vb_event *event = context->unacked; event; event = next) {
        next = event->next;
        free(event);
    }
    context->events = context->unacked = NULL;
    vb_lock_release(&context->mutex);
}
