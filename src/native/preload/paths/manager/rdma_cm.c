// SPDX-License-Identifier: Apache-2.0
/*
 * The device of librdmacm (rdma_cm.h). Its descriptor is a socket to the agent, which sends events:
 * so poll, epoll, select, O_NONBLOCK, dup and fork do what they do with the kernel's device, and
 * the agent learns from the kernel when the last descriptor is closed. Each write(2) is a command,
 * which is passed to the agent; its answer, or the event, is stored where the command says.
 */
#include "preload/paths/manager/rdma_cm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "port/gid.h"
#include "port/ports.h"
#include "preload/paths/claim.h"
#include "preload/paths/devices.h"
#include "preload/paths/fabric/question.h"
#include "preload/paths/manager/agent.h"
#include "preload/paths/manager/program_memory.h"

/* Linux' include/uapi/rdma/rdma_user_cm.h */
struct command_head {
    uint32_t command;
    uint16_t in, out; /* bytes: of what follows, and of the room for the answer */
};
enum { CREATE_ID = 0, DESTROY_ID = 1, GET_EVENT = 12, SET_OPTION = 14, MIGRATE_ID = 18 };
enum { MIGRATE_DESCRIPTOR_AT = 8 + 12, CREATE_ANSWER_AT = 8 + 8, ANSWER_AT = 8 };
enum { OPTION_VALUE_AT = 8, OPTION_LENGTH_AT = 8 + 20, SET_OPTION_BYTES = 8 + 24 };
enum { GID_KEPT_MS = 20 };
enum { DEVICE_REMOVAL = 11, EVENT_WORDS = 84, OLDEST_EVENT = 324 /* bytes */ };

int vb_preload_rdma_cm_open(int node, int flags)
{
    int fd = vb_preload_agent_open(VB_AGENT_DEVICE, flags & O_CLOEXEC ? SOCK_CLOEXEC : 0);
    if (fd < 0) {
        errno = -fd;
        return -1;
    }
    if (!vb_preload_stamp_socket(fd, node) ||
        (flags & O_NONBLOCK && fcntl(fd, F_SETFL, O_NONBLOCK))) {
        close(fd);
        errno = EIO;
        return -1;
    }
    vb_preload_device_was_opened();
    return fd;
}

/* ---- answers --------------------------------------------------------------------------------- */

static int index_in_port(const struct vb_agent_answer *answer, const struct vb_port_setting *port)
{
    struct vb_gid table[VB_GID_MAX];
    int count = port->infiniband ? 0
                                 : vb_port_gid_table(port->netdev[0] ? port->netdev : NULL,
                                                     vb_port_unit(answer->device, answer->port),
                                                     table, VB_GID_MAX);
    for (int i = 0; i < count; i++)
        if (memcmp(table[i].raw, answer->gid, sizeof answer->gid) == 0)
            return i;
    return port->infiniband ? 0 : -1;
}

static int search_gid_index(const struct vb_agent_answer *answer)
{
    struct vb_device_settings settings;
    const char *complaint;
    vb_port_devices_read(&settings, &complaint);
    for (int i = 0; i < settings.count; i++) {
        const struct vb_port_settings *device = &settings.device[i];
        if (device->device == answer->device && answer->port >= 1 && answer->port <= device->count)
            return index_in_port(answer, &device->port[answer->port - 1]);
    }
    return -1;
}

/* 0, or errno; `data` goes where the command says. */
static int store(const struct command_head *head, const uint8_t *command, size_t size,
                 const void *data, size_t length)
{
    size_t at = head->command == CREATE_ID ? CREATE_ANSWER_AT : ANSWER_AT;
    uint64_t where;
    if (!length)
        return 0;
    if (size < at + sizeof where || length > head->out)
        return EINVAL;
    memcpy(&where, command + at, sizeof where);
    return vb_preload_program_write((void *)(uintptr_t)where, data, length);
}

static uint64_t rdma_cm_milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Two processes may have a GID under different indices: those of this one hold here. The system is
 * asked for its addresses, which takes 30 µs, and what it said is kept for as long as the agent
 * keeps it: a thousand connections in a second ask for the same GID. */
static int gid_index(const struct vb_agent_answer *answer)
{
    static _Thread_local struct {
        uint8_t gid[sizeof answer->gid];
        uint32_t device, port;
        int index;
        uint64_t until;
    } recent;
    const uint64_t now = rdma_cm_milliseconds();
    if (now >= recent.until || recent.device != answer->device || recent.port != answer->port ||
        memcmp(recent.gid, answer->gid, sizeof recent.gid) != 0) {
        memcpy(recent.gid, answer->gid, sizeof recent.gid);
        recent.device = answer->device;
        recent.port = answer->port;
        recent.index = search_gid_index(answer);
        recent.until = recent.index < 0 ? now : now + GID_KEPT_MS;
    }
    return recent.index;
}

static int store_answer(struct vb_agent_answer *answer, const struct command_head *head,
                        const uint8_t *command, size_t size)
{
    if (answer->gid_index_at && answer->gid_index_at < answer->length) {
        int index = gid_index(answer);
        if (index < 0)
            return ENODEV; /* the address has gone, or is of an interface that the device lacks */
        answer->data[answer->gid_index_at] = (uint8_t)index;
    }
    return store(head, command, size, answer->data, answer->length);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Waits for an event, as the descriptor's flags and those of recv(2) say. 0, or errno. */
static int next_event(int fd, int flags, const struct vb_agent_request *request, size_t size,
                      const struct command_head *head)
{
    _Alignas(8) uint8_t message[VB_AGENT_EVENT];
    struct vb_agent_answer *event = (void *)message;
    ssize_t length = recv(fd, message, sizeof message, flags);
    if (length < (ssize_t)sizeof *event || event->option > (size_t)length)
        return length < 0 && errno != ECONNRESET ? errno : EIO;
    if (event->length > head->out)
        event->length = head->out; /* an older program's */
    vb_preload_ids_note(request, event, event->option);
    vb_preload_agent_log(event, event->option);
    return store_answer(event, head, request->command, size);
}

/* Takes the events that wait, and adds their serial numbers to the command. */
static void take_back(int fd, struct vb_agent_request *request, size_t *size)
{
    struct vb_agent_answer event;
    uint32_t serials[1 + VB_AGENT_EVENTS] = {0};
    while (serials[0] < VB_AGENT_EVENTS &&
           recv(fd, &event, sizeof event, MSG_DONTWAIT) == (ssize_t)sizeof event)
        serials[++serials[0]] = event.serial;
    const size_t length = (1 + serials[0]) * sizeof serials[0];
    memcpy(request->command + *size, serials, length);
    *size += length;
}

/* The descriptor that a MIGRATE_ID names, which has the events of the identifier, or `fd`. */
static int holder_of_events(int fd, const struct command_head *head, const uint8_t *command,
                            size_t size, uint64_t *other)
{
    int named;
    uint64_t inode;
    if (head->command != MIGRATE_ID || size < MIGRATE_DESCRIPTOR_AT + sizeof named)
        return fd;
    memcpy(&named, command + MIGRATE_DESCRIPTOR_AT, sizeof named);
    if (vb_preload_device_kind(named, &inode) != VB_NODE_RDMA_CM)
        return fd;
    *other = inode;
    return named;
}

/* 0, or errno. */
static int rdma_cm_ask(int fd, struct vb_agent_request *request, size_t size,
                       const struct command_head *head)
{
    const int holder = holder_of_events(fd, head, request->command, size, &request->other);
    struct vb_agent_answer *answer;
    size_t asked = size;
    for (;;) {
        int error = -vb_preload_agent_call(fd, request, asked, &answer);
        if (error)
            return error;
        if (!(answer->flags & (VB_AGENT_TAKE_BACK | VB_AGENT_AGAIN)))
            break;
        asked = size;
        if (answer->flags & VB_AGENT_TAKE_BACK)
            take_back(holder, request, &asked);
    }
    return answer->error ? -answer->error : store_answer(answer, head, request->command, size);
}

/* ---- after the agent's end ------------------------------------------------------------------- */

static void say_that_it_ended(void)
{
    static atomic_flag was_said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&was_said))
        dprintf(STDERR_FILENO,
                vb_preload_fabric_is_set()
                    ? "verbena: the process of the fabric, which manages connections, has ended: "
                      "identifiers get RDMA_CM_EVENT_DEVICE_REMOVAL\n"
                    : "verbena: the agent, which manages connections, has ended: identifiers get "
                      "RDMA_CM_EVENT_DEVICE_REMOVAL, and connected queue pairs go on; a new event "
                      "channel (or this program, started again) starts another agent\n");
}

/* As the kernel does when a device is removed: each identifier that was bound gets its event, and
 * identifiers can be destroyed. */
static int without_agent(const struct vb_agent_request *request, size_t size,
                         const struct command_head *head)
{
    uint32_t event[EVENT_WORDS] = {0}; /* uid, id, event, ...; DESTROY_ID: the events read, none */
    uint64_t context;
    size_t length = sizeof event[0];
    say_that_it_ended();
    if (head->command == GET_EVENT && vb_preload_ids_take(request->inode, &event[2], &context)) {
        memcpy(event, &context, sizeof context);
        event[3] = DEVICE_REMOVAL;
        length = head->out < sizeof event ? head->out : sizeof event;
    } else if (head->command != DESTROY_ID) {
        return EIO;
    }
    return store(head, request->command, size, event, length);
}

static int carry_out(int fd, struct vb_agent_request *request, size_t size)
{
    struct command_head head;
    memcpy(&head, request->command, sizeof head);
    int error = head.command == GET_EVENT ? next_event(fd, 0, request, size, &head)
                                          : rdma_cm_ask(fd, request, size, &head);
    return error && error != EAGAIN && vb_preload_agent_has_ended(fd)
               ? without_agent(request, size, &head)
               : error;
}

/* A thread that waits for an event goes on waiting if another one closes the descriptor, as with
 * the kernel's device: programs do that before they end. */
static int carry_out_with_descriptor(int fd, struct vb_agent_request *request, size_t size,
                                     const struct command_head *head)
{
    if (head->out < OLDEST_EVENT)
        return ENOSPC;
    int at_once = next_event(fd, MSG_DONTWAIT, request, size, head);
    if (at_once != EAGAIN && at_once != EIO)
        return at_once;
    int held = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (held < 0)
        return errno;
    int error = carry_out(held, request, size);
    close(held);
    return error;
}

/* The value of an option is in the program's memory, and follows the command to the agent. */
static int add_option(struct vb_agent_request *request, size_t *size)
{
    uint64_t where;
    uint32_t length;
    memcpy(&where, request->command + OPTION_VALUE_AT, sizeof where);
    memcpy(&length, request->command + OPTION_LENGTH_AT, sizeof length);
    if (length > sizeof request->command - *size)
        return 0; /* the agent refuses one without its value */
    int error =
        vb_preload_program_read(request->command + *size, (const void *)(uintptr_t)where, length);
    *size += length;
    return error;
}

static int write_command(int fd, uint64_t inode, const void *command, size_t size)
{
    struct vb_agent_request request = {.inode = inode};
    struct command_head head;
    int error = vb_preload_program_read(request.command, command, size);
    if (error)
        return error;
    memcpy(&head, request.command, sizeof head);
    if (head.command == GET_EVENT)
        return carry_out_with_descriptor(fd, &request, size, &head);
    if (head.command == SET_OPTION && size == SET_OPTION_BYTES)
        error = add_option(&request, &size);
    return error ? error : carry_out(fd, &request, size);
}

bool vb_preload_rdma_cm_takes(size_t size)
{
    return size >= sizeof(struct command_head) && size <= VB_AGENT_COMMAND;
}

ssize_t vb_preload_rdma_cm_write(int fd, uint64_t inode, const void *command, size_t size)
{
    int error = write_command(fd, inode, command, size);
    if (!error)
        return (ssize_t)size;
    errno = error;
    return -1;
}
