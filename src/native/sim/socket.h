// SPDX-License-Identifier: Apache-2.0
/*
 * The sockets of programs: the two ends of a TCP connection, each of which sends a stream, and
 * parcels, which are single packets. The Python binding (_world_sockets.pxi) opens, writes, reads
 * and closes them, and takes the news of what has happened. Bytes stay in Python: here a stream has
 * numbers of bytes, and a parcel a number.
 *
 * Python sets up connections with parcels, so that a socket begins as ESTABLISHED. Two sockets of
 * one connection have the numbers n and n + 1, n even, which are not used again. A packet's flow is
 * VB_SIM_SOCKET | the number of the socket whose stream it is of. Its header has the window, and
 * that of a segment an acknowledgement of the other stream, at the places below.
 */
#ifndef VB_SIM_SOCKET_H
#define VB_SIM_SOCKET_H

#include "sim/tcp.h"

static const uint32_t VB_SIM_SOCKET = 1u << 31;

enum {
    VB_SIM_SOCKET_WINDOW = 2,                /* 2 bytes, scaled */
    VB_SIM_SOCKET_ACK = VB_WORLD_TCP_BLOCKS, /* 6 bytes, of a segment */
    VB_SIM_PARCEL_HEAD = 24,                 /* bytes, from VB_WORLD_TCP_BLOCKS on */
    VB_SIM_SOCKETS_READABLE = INT32_MAX,     /* in place of a descriptor that is readable */
};

/* What has happened to a socket, or a parcel. */
enum vb_sim_news {
    VB_SIM_NEWS_DATA = 1,   /* bytes, or the end of the peer's stream, have arrived */
    VB_SIM_NEWS_ROOM = 2,   /* acknowledged bytes have left room, or the whole stream is */
    VB_SIM_NEWS_FAILED = 4, /* the other end has not answered for too long */
    VB_SIM_NEWS_STRAY = 8,  /* bytes have come to a socket that the program has closed */
    VB_SIM_NEWS_PARCEL = 16,
    VB_SIM_NEWS_LOST = 32, /* a parcel */
};

struct vb_sim_socket_news {
    uint64_t number; /* of the socket or the parcel */
    uint8_t what;    /* enum vb_sim_news; 0: that of the socket */
};

struct vb_sim_socket {
    struct vb_sim_connection connection; /* its stream to the peer; the first member */
    struct vb_tcp_stream stream;
    struct vb_tcp_config config;
    struct vb_sim_flow counts; /* resent, marked, notices, timeouts */
    struct vb_sim_socket *peer;
    uint64_t taken; /* bytes of the peer's stream that the program has read */
    uint64_t told;  /* bytes up to which the peer has been told that it may send */
    uint64_t low;   /* news of ROOM, while no more bytes than these are unacknowledged */
    uint32_t number;
    uint16_t port;
    uint8_t news; /* enum vb_sim_news: what Python has not taken */
    bool reading; /* the program reads all bytes when they arrive */
    bool closed;  /* it reads no more */
};

struct vb_sim_socket_ends {
    uint32_t host[2];
    uint16_t port[2];
    uint8_t level, kind; /* enum vb_tcp_kind */
    uint64_t ack_delay;  /* ps */
};

/* Opens both sockets of a connection. -ENOMEM. */
int vb_sim_sockets_open(struct vb_sim *sim, const struct vb_sim_socket_ends *ends,
                        uint32_t *number);
/* Frees both. */
void vb_sim_sockets_close(struct vb_sim *sim, uint32_t number);
void vb_sim_sockets_free(struct vb_sim *sim);
/* NULL: it is closed. */
static inline struct vb_sim_socket *vb_sim_socket_find(const struct vb_sim *sim, uint32_t number)
{
    return number < sim->sockets ? sim->socket[number] : NULL;
}
/* The stream of a socket has grown, or ended; or TCP_NODELAY is set. */
void vb_sim_socket_write(struct vb_sim *sim, struct vb_sim_socket *socket);
/* The program has read `taken` bytes, and does or does not read on. */
void vb_sim_socket_read(struct vb_sim *sim, struct vb_sim_socket *socket, uint64_t taken,
                        bool reading);
/* Another congestion control for what a socket sends. */
void vb_sim_socket_control(struct vb_sim_socket *socket, uint8_t kind);
/* Bytes of the peer's stream that have arrived, and whether its end has. */
uint64_t vb_sim_socket_arrived(const struct vb_sim_socket *socket, bool *end);
/* Removes the first of the news: returns it, and what it is about. 0: there is none. */
uint8_t vb_sim_socket_take_news(struct vb_sim *sim, uint64_t *number);

/* tcp.c calls these of packets and their receiving sockets. */
void vb_sim_socket_add_window(struct vb_sim_socket *socket, struct vb_world_packet *packet);
void vb_sim_socket_add_ack(struct vb_sim_socket *socket, struct vb_world_packet *packet);
/* The acknowledgement in a packet of the stream of `socket`. */
struct vb_tcp_ack vb_sim_socket_ack(const struct vb_sim_socket *socket,
                                    const struct vb_world_packet *packet);
void vb_sim_socket_received(struct vb_sim *sim, struct vb_sim_socket *socket);
void vb_sim_socket_acked(struct vb_sim *sim, struct vb_sim_socket *socket);
void vb_sim_socket_failed(struct vb_sim *sim, struct vb_sim_socket *socket);
/* Has the program closed the socket to which these bytes come? */
bool vb_sim_socket_refuses(struct vb_sim *sim, struct vb_sim_socket *socket,
                           const struct vb_tcp_segment *segment);

/* Is a TCP packet a socket's, or a parcel, and not a flow's? */
static inline bool vb_sim_socket_has_packet(const struct vb_world_packet *packet)
{
    return (packet->header[VB_WORLD_TCP_FLAGS] & VB_SIM_TCP_IS_PARCEL) ||
           (vb_sim_tcp_flow(packet) & VB_SIM_SOCKET);
}

/* A packet that Python makes: a segment without a connection, or a fragment of a datagram. */
struct vb_sim_parcel {
    uint32_t source, target; /* hosts */
    uint64_t number;         /* 48 bits */
    uint32_t hash;           /* 24 bits, by which switches choose among several ways */
    uint16_t payload;        /* bytes after the IP header of 20 bytes */
    uint8_t level;
    uint8_t head[VB_SIM_PARCEL_HEAD]; /* for captures (tcp_frame.c) */
};

/* -ENOMEM. */
int vb_sim_parcel_send(struct vb_sim *sim, const struct vb_sim_parcel *parcel);
void vb_sim_parcel_arrive(struct vb_sim_host *host, uint32_t packet);
void vb_sim_parcel_dropped(struct vb_sim *sim, const struct vb_world_packet *packet);
/* ps until a host's link has sent what was given to it; of one with lanes: 0. */
uint64_t vb_sim_host_backlog(const struct vb_sim *sim, uint32_t host);

#endif
