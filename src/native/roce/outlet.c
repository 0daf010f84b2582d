// SPDX-License-Identifier: Apache-2.0
#include "roce/outlet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct vb_kept_letter {
    struct vb_kept_letter *next;
    uint32_t length; /* of the packet */
    struct vb_letter letter;
    uint8_t bytes[];
};

static struct vb_letter letter_of(const struct vb_arrival *arrival)
{
    struct vb_letter letter = {.flow_label = arrival->flow_label,
                               .traffic_class = arrival->traffic_class,
                               .hop_limit = arrival->hop_limit};

    memcpy(letter.sgid, arrival->sgid, sizeof(letter.sgid));
    memcpy(letter.dgid, arrival->dgid, sizeof(letter.dgid));
    return letter;
}

static int send_letter(int fd, const struct vb_letter *letter, const uint8_t *bytes,
                       uint32_t length)
{
    struct iovec parts[2] = {{(void *)(uintptr_t)letter, sizeof(*letter)},
                             {(void *)(uintptr_t)bytes, length}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};

    if (sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return 0;
    return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR ? -EAGAIN
                                                                                    : -EPIPE;
}

int vb_roce_outlet_send(const struct vb_outlet *outlet, const struct vb_arrival *arrival)
{
    struct vb_letter letter = letter_of(arrival);

    return send_letter(outlet->fd, &letter, arrival->bytes, arrival->length);
}

int vb_roce_outlet_keep(struct vb_outlet *outlet, const struct vb_arrival *arrival)
{
    struct vb_kept_letter *kept = malloc(sizeof(*kept) + arrival->length);

    if (!kept)
        return -ENOMEM;
    kept->next = NULL;
    kept->length = arrival->length;
    kept->letter = letter_of(arrival);
    memcpy(kept->bytes, arrival->bytes, arrival->length);
    if (outlet->last)
        outlet->last->next = kept;
    else
        outlet->first = kept;
    outlet->last = kept;
    outlet->kept += sizeof(*kept) + kept->length;
    return 0;
}

static void drop_first(struct vb_outlet *outlet)
{
    struct vb_kept_letter *first = outlet->first;

    outlet->kept -= sizeof(*first) + first->length;
    outlet->first = first->next;
    if (!outlet->first)
        outlet->last = NULL;
    free(first);
}

int vb_roce_outlet_drain(struct vb_outlet *outlet)
{
    const struct vb_kept_letter *first;

    while ((first = outlet->first)) {
        int error = send_letter(outlet->fd, &first->letter, first->bytes, first->length);

        if (error)
            return error;
        drop_first(outlet);
    }
    return 0;
}

void vb_roce_outlet_clear(struct vb_outlet *outlet)
{
    while (outlet->first)
        drop_first(outlet);
}
