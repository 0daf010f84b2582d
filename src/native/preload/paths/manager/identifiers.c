// SPDX-License-Identifier: Apache-2.0
/*
 * What this process knows of its identifiers by the agent's messages (agent.h): which are bound to
 * a device, so that rdma_cm.c can report their RDMA_CM_EVENT_DEVICE_REMOVAL when the agent has
 * ended, and answers to what librdmacm asks after an event, which it then need not ask.
 */
#include <stdlib.h>
#include <string.h>

#include "lock/mutex.h"
#include "preload/paths/manager/agent.h"

enum { BUCKETS = 1024 };

struct known {
    struct known *next;
    uint64_t inode, context;         /* 0: it is not bound to a device */
    uint32_t id, serial;             /* of the newest message about it */
    struct vb_agent_answer *message; /* with answers in advance, or NULL */
    size_t length;
};

static struct vb_mutex known_lock = VB_MUTEX_INITIALIZER(VB_RANK_IDENTIFIERS);
static struct known *buckets[BUCKETS];

struct vb_agent_answer *vb_preload_agent_next(const struct vb_agent_answer *message, size_t length,
                                              const struct vb_agent_answer *answer)
{
    size_t at = answer ? (size_t)((const char *)answer - (const char *)message) +
                             ((sizeof *answer + answer->length + 7) & ~(size_t)7)
                       : 0;
    struct vb_agent_answer *found = (void *)((char *)message + at);
    return at + sizeof *found <= length && found->length <= length - at - sizeof *found ? found
                                                                                        : NULL;
}

/* Where the identifier is, or would be. */
static struct known **place(uint64_t inode, uint32_t id)
{
    struct known **at = &buckets[id % BUCKETS];
    while (*at && ((*at)->id != id || (*at)->inode != inode))
        at = &(*at)->next;
    return at;
}

static void forget(struct known **at)
{
    struct known *gone = *at;
    *at = gone->next;
    free(gone->message);
    free(gone);
}

/* Without memory it stays unknown: its program has to ask, and only gets EIO when the agent ends.
 */
static struct known *know(uint64_t inode, uint32_t id)
{
    struct known **at = place(inode, id);
    if (!*at && (*at = calloc(1, sizeof **at))) {
        (*at)->inode = inode;
        (*at)->id = id;
    }
    return *at;
}

static void keep(struct known *known, const struct vb_agent_answer *message, size_t length)
{
    free(known->message);
    known->message = vb_preload_agent_next(message, length, message) ? malloc(length) : NULL;
    known->length = known->message ? length : 0;
    if (known->message)
        memcpy(known->message, message, length);
}

static void note(uint64_t inode, const struct vb_agent_answer *message, size_t length)
{
    struct known *known = know(inode, message->id);
    if (!known)
        return;
    if (message->flags & VB_AGENT_REMEMBER)
        known->context = message->context;
    if (message->flags & VB_AGENT_CHANGED && (int32_t)(message->serial - known->serial) > 0) {
        known->serial = message->serial;
        keep(known, message, length);
    }
}

void vb_preload_ids_note(const struct vb_agent_request *request,
                         const struct vb_agent_answer *message, size_t length)
{
    uint64_t before = request->other ? request->other : request->inode;
    if (!(message->flags & (VB_AGENT_REMEMBER | VB_AGENT_FORGET | VB_AGENT_CHANGED)))
        return;
    vb_lock_take(&known_lock);
    struct known **at = place(before, message->id);
    if (*at && (message->flags & VB_AGENT_FORGET || before != request->inode))
        forget(at);
    if (!(message->flags & VB_AGENT_FORGET))
        note(request->inode, message, length);
    vb_lock_release(&known_lock);
}

bool vb_preload_ids_answer(const struct vb_agent_request *request, struct vb_agent_answer *answer)
{
    uint32_t command, names[2];
    memcpy(&command, request->command, sizeof command);
    memcpy(names, request->command + VB_AGENT_QUERY - sizeof names, sizeof names);
    vb_lock_take(&known_lock);
    const struct known *known = *place(request->inode, names[0]);
    const struct vb_agent_answer *found = known ? known->message : NULL;
    while (found && (found->command != command || found->option != names[1]))
        found = vb_preload_agent_next(known->message, known->length, found);
    if (found)
        memcpy(answer, found, sizeof *found + found->length);
    vb_lock_release(&known_lock);
    return found;
}

bool vb_preload_ids_take(uint64_t inode, uint32_t *id, uint64_t *context)
{
    struct known **found = NULL;
    vb_lock_take(&known_lock);
    for (unsigned i = 0; i < BUCKETS && !found; i++)
        for (struct known **at = &buckets[i]; *at && !found; at = &(*at)->next)
            if ((*at)->inode == inode && (*at)->context)
                found = at;
    if (found) {
        *id = (*found)->id;
        *context = (*found)->context;
        forget(found);
    }
    vb_lock_release(&known_lock);
    return found;
}
