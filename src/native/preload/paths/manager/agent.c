// SPDX-License-Identifier: Apache-2.0
/*
 * Connects to the agent (agent.h). Each thread that gives commands has a connection for them, so
 * that no lock is held while a program waits, and a forked child makes its own.
 */
#include "preload/paths/manager/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "direct/user.h"
#include "memory/descriptor.h"
#include "port/gid.h"
#include "port/ports.h"
#include "preload/paths/claim.h"
#include "preload/paths/fabric/question.h"

enum {
    START_SECONDS = 10,
    ANSWER_SECONDS = 30,
    PATIENCE_SECONDS = 2, /* then a line says for whom a call waits */
    NAP_NS = 2000 * 1000,
    LOOKS = 256
};

/* ---- the socket ------------------------------------------------------------------------------ */

static int agent_connect(int flags)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const bool in_fabric = vb_preload_fabric_is_set();
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "verbena/agent/%u%s%s",
                          (unsigned)geteuid(), in_fabric ? "/" : "",
                          in_fabric ? getenv("VERBENA_FABRIC") : "");
    int fd = vb_memory_descriptor_raise(socket(AF_UNIX, SOCK_SEQPACKET | flags, 0));
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
        return fd;
    int error = errno;
    close(fd);
    return -error;
}

static void limit_waits(int fd, int seconds)
{
    struct timeval limit = {.tv_sec = seconds};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static void say_who_is_awaited(int fd)
{
    struct ucred agent = {0};
    socklen_t length = sizeof agent;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &agent, &length);
    dprintf(STDERR_FILENO,
            "verbena: a call of librdmacm waits for the agent, process %d, which manages "
            "connections and does not answer: is it stopped? `kill -CONT %d` lets it go on\n",
            (int)agent.pid, (int)agent.pid);
}

/* Looks for a message for some 200 µs: most answers come sooner, also while the agent does what
 * follows of another command, and to sleep and be woken costs this thread 50 µs, and the agent a
 * tenth of its time. Other threads may have the processor. */
static ssize_t receive_soon(int fd, void *message, size_t size)
{
    for (int i = 0; i < LOOKS; i++) {
        ssize_t length = recv(fd, message, size, MSG_DONTWAIT);
        if (length >= 0 || errno != EAGAIN)
            return length;
        sched_yield();
    }
    return -1;
}

/* Waits for a message for so many seconds, on a socket that waits PATIENCE_SECONDS. */
static ssize_t receive(int fd, void *message, size_t size, int seconds)
{
    ssize_t soon = receive_soon(fd, message, size);
    if (soon >= 0 || (errno != EINTR && errno != EAGAIN))
        return soon;
    for (int waited = 0;;) {
        ssize_t length = recv(fd, message, size, 0);
        if (length >= 0 || (errno != EINTR && errno != EAGAIN))
            return length;
        if (errno == EINTR)
            continue;
        if (waited == 0)
            say_who_is_awaited(fd);
        if ((waited += PATIENCE_SECONDS) >= seconds)
            return -1;
    }
}

/* ---- hello ----------------------------------------------------------------------------------- */

static size_t describe_port(char *text, size_t size, unsigned device, unsigned number,
                            const struct vb_port_setting *port)
{
    int length = snprintf(text, size, "%u %u %016llx %s %u %s\n", device, number,
                          (unsigned long long)vb_port_device_guid(device),
                          port->infiniband ? "infiniband" : "ethernet", port->lid, port->netdev);
    return (size_t)length < size ? (size_t)length : 0;
}

static void describe_ports(char text[VB_AGENT_PORTS])
{
    struct vb_device_settings settings;
    const char *complaint;
    size_t used = 0;
    vb_port_devices_read(&settings, &complaint);
    for (unsigned i = 0; i < settings.count; i++)
        for (unsigned n = 0; n < settings.device[i].count; n++)
            used += describe_port(text + used, VB_AGENT_PORTS - used, settings.device[i].device,
                                  n + 1, &settings.device[i].port[n]);
}

static int welcomed(const struct vb_agent_welcome *welcome, ssize_t length)
{
    if (length <= 0)
        return length == 0 || errno == ECONNRESET ? -ECONNRESET : -errno;
    if (length != (ssize_t)sizeof *welcome || welcome->magic != VB_AGENT_MAGIC)
        return -EPROTO;
    if (welcome->version != VB_AGENT_VERSION)
        dprintf(STDERR_FILENO,
                "verbena: the agent, process %d, is of another version of Verbena: end the "
                "programs that use it, or the agent, and start this one again\n",
                (int)welcome->pid);
    return welcome->version == VB_AGENT_VERSION ? welcome->error : -EPROTONOSUPPORT;
}

static int say_hello(int fd, enum vb_agent_role role)
{
    struct vb_agent_hello hello = {
        .magic = VB_AGENT_MAGIC, .version = VB_AGENT_VERSION, .role = role};
    struct vb_agent_welcome welcome;
    struct stat own;
    int error = vb_direct_check_user(fd);
    if (error)
        return error;
    if (vb_preload_next_fstatat(fd, "", &own, AT_EMPTY_PATH))
        return -errno;
    hello.inode = own.st_ino;
    if (vb_preload_fabric_is_set())
        snprintf(hello.ports, sizeof hello.ports, "at %s\n", getenv("VERBENA_HOST"));
    else
        describe_ports(hello.ports);
    limit_waits(fd, PATIENCE_SECONDS);
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        return errno == EPIPE ? -ECONNRESET : -errno;
    error = welcomed(&welcome, receive(fd, &welcome, sizeof welcome, START_SECONDS));
    limit_waits(fd, 0);
    return error;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Once in a process; programs that can do without go on. */
static int agent_complain(int error)
{
    static atomic_flag was_said = ATOMIC_FLAG_INIT;
    const char *fabric = vb_preload_fabric_is_set() ? getenv("VERBENA_FABRIC") : NULL;
    const char *reason = error == -EACCES ? "its name is held by a process of another user"
                         : error == -ENOENT
                             ? "VERBENA_AGENT is off, or not set (`verbena run` sets it)"
                         : error == -ETIMEDOUT ? "it did not start in time"
                                               : strerror(-error);
    if (error == -EPROTONOSUPPORT || atomic_flag_test_and_set(&was_said))
        return error;
    if (fabric)
        dprintf(STDERR_FILENO,
                "verbena: the fabric %s does not manage connections: %s; `verbena fabric --list` "
                "shows which run\n",
                fabric, strerror(-error));
    else
        dprintf(STDERR_FILENO,
                "verbena: no connection to the agent, which manages connections: %s; `verbena "
                "agent` in another terminal shows what is wrong\n",
                reason);
    return error;
}

static uint64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int try_to_open(enum vb_agent_role role, int flags)
{
    int fd = agent_connect(flags);
    int error = fd < 0 ? fd : say_hello(fd, role);
    if (!error)
        return fd;
    if (fd >= 0)
        close(fd);
    return error;
}

/* Refused: nobody has the name. Reset: the agent ended while this process connected. */
static bool agent_is_absent(int error)
{
    return error == -ECONNREFUSED || error == -ECONNRESET;
}

int vb_preload_agent_open(enum vb_agent_role role, int flags)
{
    const uint64_t begun = milliseconds();
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const char *agent = getenv("VERBENA_AGENT");
    int fd = agent && strcmp(agent, "off") == 0 ? -ENOENT : try_to_open(role, flags);
    if (agent_is_absent(fd) && vb_preload_fabric_is_set())
        return agent_complain(fd);
    if (agent_is_absent(fd)) {
        int error = vb_preload_agent_start();
        if (error)
            return agent_complain(error);
    }
    while (agent_is_absent(fd)) {
        if (milliseconds() - begun > START_SECONDS * 1000)
            return agent_complain(-ETIMEDOUT);
        nanosleep(&nap, NULL);
        fd = try_to_open(role, flags);
    }
    return fd < 0 ? agent_complain(fd) : fd;
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct calls {
    int fd;
    pid_t owner; /* a forked child has its parent's descriptor, which it does not use */
    _Alignas(8) uint8_t message[VB_AGENT_MESSAGE];
};

static pthread_key_t calls_key;

static void close_calls(void *calls)
{
    close(((struct calls *)calls)->fd);
    free(calls);
}

static void make_calls_key(void)
{
    pthread_key_create(&calls_key, close_calls);
}

static void forget_calls(struct calls *calls)
{
    pthread_setspecific(calls_key, NULL);
    close_calls(calls);
}

static struct calls *open_calls(int *error)
{
    struct calls *calls = malloc(sizeof *calls);
    *error = calls ? vb_preload_agent_open(VB_AGENT_CALLS, SOCK_CLOEXEC) : -ENOMEM;
    if (*error < 0) {
        free(calls);
        return NULL;
    }
    calls->fd = *error;
    calls->owner = getpid();
    *error = pthread_setspecific(calls_key, calls) ? -ENOMEM : 0;
    limit_waits(calls->fd, PATIENCE_SECONDS);
    return calls;
}

/* This thread's connection, which is made if there is none. */
static struct calls *calls_of_thread(int *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_calls_key);
    struct calls *calls = pthread_getspecific(calls_key);
    *error = 0;
    if (calls && calls->owner == getpid())
        return calls;
    if (calls)
        forget_calls(calls);
    return open_calls(error);
}

bool vb_preload_agent_has_ended(int device)
{
    struct pollfd ended = {.fd = device}; /* events that it has sent may still wait */
    return poll(&ended, 1, 0) == 1 && ended.revents & POLLHUP;
}

/* An agent ends when nobody has a device open; a thread's connection is then closed, too. */
static int send_request(int device, const struct vb_agent_request *request, size_t size,
                        struct calls **calls)
{
    int error;
    for (int attempt = 0; attempt < 2; attempt++) {
        *calls = calls_of_thread(&error);
        if (!*calls)
            return error;
        if (send((*calls)->fd, request, size, MSG_NOSIGNAL) == (ssize_t)size)
            return 0;
        error = -errno;
        forget_calls(*calls);
        if ((error != -EPIPE && error != -ECONNRESET) || vb_preload_agent_has_ended(device))
            return error;
    }
    return -EIO;
}

void vb_preload_agent_log(const struct vb_agent_answer *message, size_t length)
{
    const struct vb_agent_answer *each = NULL;
    while ((each = vb_preload_agent_next(message, length, each)))
        if (each->command == VB_AGENT_SENTENCE && getenv("VERBENA_LOG"))
            dprintf(STDERR_FILENO, "verbena: %s[%d]: %.*s\n", program_invocation_short_name,
                    (int)getpid(), (int)each->length, (const char *)each->data);
}

int vb_preload_agent_call(int device, const struct vb_agent_request *request, size_t size,
                          struct vb_agent_answer **answer)
{
    int error;
    struct calls *calls = calls_of_thread(&error);
    if (calls && size == VB_AGENT_QUERY) {
        *answer = (void *)calls->message;
        if (vb_preload_ids_answer(request, *answer))
            return 0;
    }
    error =
        send_request(device, request, offsetof(struct vb_agent_request, command) + size, &calls);
    if (error)
        return error;
    ssize_t length = receive(calls->fd, calls->message, sizeof calls->message, ANSWER_SECONDS);
    *answer =
        length < 0 ? NULL : vb_preload_agent_next((void *)calls->message, (size_t)length, NULL);
    if (*answer) {
        vb_preload_ids_note(request, *answer, (size_t)length);
        vb_preload_agent_log(*answer, (size_t)length);
        return 0;
    }
    forget_calls(calls); /* an answer that comes later would be taken for the next call's */
    return -EIO;
}
