// SPDX-License-Identifier: Apache-2.0
/* Asynchronous events: a queue per context behind a descriptor that polls. */
#ifndef VB_HCA_EVENT_H
#define VB_HCA_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/verbs.h"

struct vb_context;

struct vb_event {
    struct vb_event *next;
    struct ibv_async_event event;
    bool is_awaited; /* its element is destroyed only when it is acknowledged */
};

/* `element` is the CQ, QP or SRQ as the program knows it, or NULL for a device event. */
void vb_event_raise(struct vb_context *context, enum ibv_event_type type, void *element);
void vb_event_raise_port(struct vb_context *context, enum ibv_event_type type, int port_num);

/* Waits as the descriptor's O_NONBLOCK says. 0 or -EAGAIN, -EINTR, -EIO. */
int vb_event_get(struct vb_context *context, struct ibv_async_event *event);
void vb_event_ack(struct vb_context *context, struct ibv_async_event *event);

/* Drops the element's unread events, then waits until those read are acknowledged. */
void vb_event_retire(struct vb_context *context, const void *element);
/* The context is being closed: nobody will read or acknowledge. */
void vb_event_drop_all(struct vb_context *context);

#endif
