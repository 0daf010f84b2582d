// SPDX-License-Identifier: Apache-2.0
/*
 * A program of stream sockets that knows nothing of RDMA, for librspreload: "server ADDRESS PORT"
 * sends back what it gets, and "client ADDRESS PORT BYTES" compares. test_programs.py runs both.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char sent[1 << 16], got[1 << 16];

static int serve(int listener)
{
    ssize_t length;
    listen(listener, 1);
    puts("listening");
    fflush(stdout);
    int peer = accept(listener, NULL, NULL);
    while (peer >= 0 && (length = recv(peer, got, sizeof(got), 0)) > 0)
        for (ssize_t done = 0; done < length;)
            done += send(peer, got + done, (size_t)(length - done), 0);
    return peer < 0;
}

static int ask(int fd, long bytes)
{
    for (size_t i = 0; i < sizeof(sent); ++i)
        sent[i] = (char)(i * 7);
    for (; bytes > 0; bytes -= (long)sizeof(sent)) {
        if (send(fd, sent, sizeof(sent), 0) != (ssize_t)sizeof(sent) ||
            recv(fd, got, sizeof(got), MSG_WAITALL) != (ssize_t)sizeof(got) ||
            memcmp(sent, got, sizeof(sent)) != 0)
            return 1;
    }
    return 0;
}

int main(int count, char **words)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0), failed;

    if (count < 4)
        return 2;
    inet_pton(AF_INET, words[2], &address.sin_addr);
    address.sin_port = htons((uint16_t)atoi(words[3]));
    if (strcmp(words[1], "server") == 0)
        failed = bind(fd, (struct sockaddr *)&address, sizeof(address)) || serve(fd);
    else
        failed =
            connect(fd, (struct sockaddr *)&address, sizeof(address)) || ask(fd, atol(words[4]));
    shutdown(fd, SHUT_RDWR);
    close(fd);
    return failed;
}
