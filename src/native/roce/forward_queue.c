// SPDX-License-Identifier: Apache-2.0
/*
 * A queue of packets in front of one Unix socket (forward_queue.h). forward.c calls it under the
 * port's lock.
 */
#include "roce/forward_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct vb_forward_kept {
    struct vb_forward_kept *next;
    uint32_t length; /* of the packet */
    struct vb_forward_header head;
    uint8_t bytes[];
};

static struct vb_forward_header forward_header_of(const struct vb_arrival *arrival)
{
    struct vb_forward_header head = {.flow_label = arrival->flow_label,
                                     .traffic_class = arrival->traffic_class,
                                     .hop_limit = arrival->hop_limit};

    memcpy(head.sgid, arrival->sgid, sizeof(head.sgid));
    memcpy(head.dgid, arrival->dgid, sizeof(head.dgid));
    return head;
}

static int send_forwarded(int fd, const struct vb_forward_header *head, const uint8_t *bytes,
                          uint32_t length)
{
    struct iovec parts[2] = {{(void *)(uintptr_t)head, sizeof(*head)},
                             {(void *)(uintptr_t)bytes, length}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};

    if (sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return 0;
    return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR ? -EAGAIN
                                                                                    : -EPIPE;
}

int vb_roce_forward_queue_send(const struct vb_forward_queue *queue,
                               const struct vb_arrival *arrival)
{
    struct vb_forward_header head = forward_header_of(arrival);

    return send_forwarded(queue->fd, &head, arrival->bytes, arrival->length);
}

int vb_roce_forward_queue_keep(struct vb_forward_queue *queue, const struct vb_arrival *arrival)
{
    struct vb_forward_kept *kept = malloc(sizeof(*kept) + arrival->length);

    if (!kept)
        return -ENOMEM;
    kept->next = NULL;
    kept->length = arrival->length;
    kept->head = forward_header_of(arrival);
    memcpy(kept->bytes, arrival->bytes, arrival->length);
    if (queue->last)
        queue->last->next = kept;
    else
        queue->first = kept;
    queue->last = kept;
    queue->kept += sizeof(*kept) + kept->length;
    return 0;
}

static void drop_first(struct vb_forward_queue *queue)
{
    struct vb_forward_kept *first = queue->first;

    queue->kept -= sizeof(*first) + first->length;
    queue->first = first->next;
    if (!queue->first)
        queue->last = NULL;
    free(first);
}

int vb_roce_forward_queue_drain(struct vb_forward_queue *queue)
{
    const struct vb_forward_kept *first;

    while ((first = queue->first)) {
        int error = send_forwarded(queue->fd, &first->head, first->bytes, first->length);

        if (error)
            return error;
        drop_first(queue);
    }
    return 0;
}

void vb_roce_forward_queue_clear(struct vb_forward_queue *queue)
{
    while (queue->first)
        drop_first(queue);
}
