// SPDX-License-Identifier: Apache-2.0
/*
 * Questions for counters and their answers (query.h). A process with several slots answers at its
 * first one alone, so that it is counted once. The question names no layout, and the answer is
 * text, so that processes of different builds understand each other.
 */
#include "direct/query.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "direct/message.h"
#include "direct/slot.h"
#include "direct/user.h"
#include "hca/adapter.h"
#include "hca/text.h"
#include "memory/descriptor.h"

enum { ANSWER_BYTES = 16 << 10, ANSWER_PATIENCE_US = 100 * 1000 };

void vb_direct_query_answer(struct vb_adapter *adapter, vb_direct_count_fn *count, uint32_t slot,
                            int socket)
{
    char json[ANSWER_BYTES];
    struct vb_text text = {json, sizeof(json), 0};

    vb_text_add(&text, "{\"slot\":%u,\"device\":%u,", slot, adapter->self.header->device);
    count(adapter, &text);
    vb_text_add(&text, "}");
    if (text.length < (int)sizeof(json))
        send(socket, json, (size_t)text.length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t ask(int socket, char *json, size_t size)
{
    struct vb_message question = {
        .type = VB_MSG_COUNTERS,
        .hello = {.magic = VB_SEGMENT_MAGIC, .version = (uint32_t)VB_NO_LAYOUT},
    };
    struct timeval patience = {.tv_usec = ANSWER_PATIENCE_US};

    if (vb_direct_check_user(socket) ||
        setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
        vb_direct_message_send(socket, &question, NULL, 0, false))
        return -1;
    return recv(socket, json, size - 1, 0);
}

static void query_slot(uint32_t slot, vb_direct_answer *each, void *with)
{
    int fd = vb_direct_slot_connect(slot);
    char json[ANSWER_BYTES];
    uint32_t first, device;
    ssize_t length;

    if (fd < 0)
        return;
    length = ask(fd, json, sizeof(json));
    close(fd);
    if (length <= 0)
        return;
    json[length] = '\0';
    if (sscanf(json, "{\"slot\":%u,\"device\":%u", &first, &device) == 2 && first == slot)
        each(with, device, json);
}

/* Connections are in the system's list under the name of the socket that they came to. */
static void note_slot(const char *line, uint64_t slots[VB_SLOTS / 64])
{
    const char *name = strstr(line, "@verbena/slot/");
    unsigned slot;

    if (name && sscanf(name, "@verbena/slot/%3x", &slot) == 1)
        slots[slot / 64] |= 1ull << slot % 64;
}

void vb_direct_query_counters(vb_direct_answer *each, void *with)
{
    uint64_t slots[VB_SLOTS / 64] = {0};
    int fd = vb_memory_descriptor_raise(open("/proc/net/unix", O_RDONLY | O_CLOEXEC));
    FILE *list = fd < 0 ? NULL : fdopen(fd, "r");
    char line[256];

    if (!list) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while (fgets(line, sizeof(line), list))
        note_slot(line, slots);
    fclose(list);
    for (uint32_t slot = 0; slot < VB_SLOTS; ++slot)
        if (slots[slot / 64] >> slot % 64 & 1)
            query_slot(slot, each, with);
}
