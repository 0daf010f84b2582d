// SPDX-License-Identifier: Apache-2.0
/*
 * Writes packets into a pcapng file that Wireshark opens. Called by wrap.c, by capture_message.c
 * and by the simulation, from any thread. A capture belongs to the process that opened it: in a
 * forked child nothing is written.
 */
#ifndef VB_WRAP_CAPTURE_H
#define VB_WRAP_CAPTURE_H

#include "wrap/fault_rules.h"
#include "wrap/frame.h"

struct vb_capture;

/* Bounds of vb_capture_config.bytes. The upper one is more than a RoCE packet has. */
enum { VB_CAPTURE_BYTES_LEAST = 64, VB_CAPTURE_BYTES_MOST = 4352 };

struct vb_capture_config {
    const char *path;
    uint32_t bytes; /* how much of each packet is kept, from its Ethernet header on; 0: all */
    uint64_t epoch; /* ns from 1970 to the moment that `now` counts from */
};

/* Errors as vb_wrap_capture_file_open; -ERANGE: `bytes`. */
int vb_wrap_capture_open(const struct vb_capture_config *config, struct vb_capture **capture);
void vb_wrap_capture_close(struct vb_capture *capture);
/*
 * `failed` is called once, when a packet cannot be written, from the thread that captures it, with
 * an error for vb_wrap_capture_problem.
 */
void vb_wrap_capture_tell(struct vb_capture *capture, void (*failed)(int error));
/* The value of `epoch` for times of CLOCK_MONOTONIC. */
uint64_t vb_wrap_capture_epoch_of_monotonic(void);
/* The error as words, for a message that names the file. */
const char *vb_wrap_capture_problem(int error);

/*
 * Adds a frame; `comment` may be NULL. Returns the frame's number in the file; 0: it could not be
 * written, which is counted.
 */
uint32_t vb_wrap_capture_frame(struct vb_capture *capture, const struct vb_frame *frame,
                               enum vb_wrap_direction direction, const char *comment, uint64_t now);
/* A frame of any kind, given as bytes. */
struct vb_capture_bytes {
    const uint8_t *bytes;
    uint32_t count;  /* the frame's first bytes, so many */
    uint32_t length; /* of the whole frame */
};
void vb_wrap_capture_bytes(struct vb_capture *capture, const struct vb_capture_bytes *frame,
                           enum vb_wrap_direction direction, const char *comment, uint64_t now);
uint64_t vb_wrap_capture_lost(const struct vb_capture *capture);

/* What is known of a datagram and is not in vb_packet or vb_arrival. */
struct vb_wrap_frame {
    uint16_t source_port;
    uint16_t ip_id;
    bool may_fragment;   /* IPv4: DF was not set */
    const uint8_t *icrc; /* 4 bytes, as they came; NULL: the ICRC held */
};

/*
 * Captures a packet that is sent. `icrc_flip`: bits of the ICRC, as a number, that are wrong.
 * `note`: what else the comment says, or NULL.
 */
void vb_wrap_capture_packet(struct vb_capture *capture, const struct vb_packet *packet,
                            const struct vb_wrap_frame *frame, uint32_t icrc_flip, const char *note,
                            uint64_t now);
/*
 * The same with a frame that is made already; of `packet` only its QP, headers and reason are read.
 * The comment says why it is sent again, and which frame of the file it was first.
 */
void vb_wrap_capture_outgoing(struct vb_capture *capture, const struct vb_packet *packet,
                              const struct vb_frame *frame, const char *note, uint64_t now);
void vb_wrap_capture_arrival(struct vb_capture *capture, const struct vb_arrival *arrival,
                             const struct vb_wrap_frame *frame, uint32_t icrc_flip,
                             const char *note, uint64_t now);

#endif
