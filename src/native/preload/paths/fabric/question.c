// SPDX-License-Identifier: Apache-2.0
/* Asks the process of a fabric, and prints what it or nobody says (question.h). */
#include "preload/paths/fabric/question.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "preload/paths/claim.h"

enum { QUESTION_SENTENCE = 512, QUESTION_PATIENCE = 30 };

bool vb_preload_fabric_is_set(void)
{
    const char *fabric = getenv("VERBENA_FABRIC"), *host = getenv("VERBENA_HOST");
    return fabric && *fabric && host && *host;
}

static int question_complain(int error, const char *sentence, size_t length)
{
    static atomic_flag was_said = ATOMIC_FLAG_INIT;
    char own[QUESTION_SENTENCE];
    if (atomic_flag_test_and_set(&was_said))
        return error;
    if (!length)
        vb_port_fabric_explain(error, own, sizeof own);
    dprintf(STDERR_FILENO, "verbena: %.*s\n", length ? (int)length : QUESTION_SENTENCE,
            length ? sentence : own);
    return error;
}

/* Makes a connection and asks by it. The connection, or -errno. */
static int question_begin(const struct vb_fabric_question *question, int flags,
                          struct vb_fabric_reply *reply)
{
    struct vb_fabric_question asked = *question;
    struct stat own;
    int fd = vb_port_fabric_reach(flags, QUESTION_PATIENCE);
    if (fd < 0)
        return question_complain(fd, NULL, 0);
    if (!asked.inode && vb_preload_next_fstatat(fd, "", &own, AT_EMPTY_PATH) == 0)
        asked.inode = own.st_ino;
    int error = vb_port_fabric_greet(fd, &asked, reply);
    if (!error)
        return fd;
    close(fd);
    if (question->role != VB_FABRIC_CALL && error != -EINTR && error != -EAGAIN)
        question_complain(error, reply->data, reply->length);
    return error;
}

int vb_preload_fabric_ask(const struct vb_fabric_question *question, void *answer, size_t room,
                          size_t *length)
{
    struct vb_fabric_reply reply = {.data = answer, .room = room, .fd = -1};
    int fd = question_begin(question, SOCK_CLOEXEC, &reply);
    *length = reply.length;
    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

int vb_preload_fabric_open(const struct vb_fabric_question *question, int flags)
{
    char sentence[QUESTION_SENTENCE];
    struct vb_fabric_reply reply = {.data = sentence, .room = sizeof sentence, .fd = -1};
    return question_begin(question, flags & O_CLOEXEC ? SOCK_CLOEXEC : 0, &reply);
}
