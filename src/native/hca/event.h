// SPDX-License-Identifier: Apache-2.0
/*
 * Asynchronous events of a context. They wait in a queue; the context's async_fd is readable while
 * there is one. Any thread may raise an event. The program reads it and acknowledges it before the
 * event's object can be destroyed.
 */
#ifndef VB_HCA_EVENT_H
#define VB_HCA_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/verbs.h"

struct vb_context;

struct vb_event {
    struct vb_event *next;
    struct ibv_async_event event;
    bool is_awaited; /* the destroyer of its object waits for its acknowledgement */
};

/* Raises an event. `element` is the program's CQ, QP or SRQ, or NULL for an event of the device. */
void vb_event_raise(struct vb_context *context, enum ibv_event_type type, void *element);
void vb_event_raise_port(struct vb_context *context, enum ibv_event_type type, int port_num);

/* Reads the next event; waits for it unless async_fd has O_NONBLOCK. 0, -EAGAIN, -EINTR or -EIO. */
int vb_event_get(struct vb_context *context, struct ibv_async_event *event);
void vb_event_ack(struct vb_context *context, struct ibv_async_event *event);

/* Drops the element's unread events, then waits until those read are acknowledged. */
void vb_event_retire(struct vb_context *context, const void *element);
/* Frees all events of a context that is being closed. */
void vb_event_drop_all(struct vb_context *context);

#endif
