// SPDX-License-Identifier: Apache-2.0
/*
 * Writes packets into a pcapng file that Wireshark opens. From any thread; a capture belongs to
 * the process that opened it: in a forked child nothing is written.
 */
#ifndef VB_WRAP_CAPTURE_H
#define VB_WRAP_CAPTURE_H

#include "wrap/fault_rules.h"
#include "wrap/frame.h"

struct vb_capture;

/* How much of a packet is kept, from its Ethernet header on. The most is more than RoCE has. */
enum { VB_CAPTURE_BYTES_LEAST = 64, VB_CAPTURE_BYTES_MOST = 4352 };

struct vb_capture_config {
    const char *path;
    uint32_t bytes; /* of each packet at most; 0: all */
    uint64_t epoch; /* ns from 1970 to the moment that `now` counts from */
};

/* Errors as vb_wrap_capture_file_open; -ERANGE: `bytes`. */
int vb_wrap_capture_open(const struct vb_capture_config *config, struct vb_capture **capture);
void vb_wrap_capture_close(struct vb_capture *capture);
/* Called with the first packet that cannot be written, once, from the thread that has it, with an
 * error for vb_wrap_capture_problem. */
void vb_wrap_capture_tell(struct vb_capture *capture, void (*failed)(int error));
/* `epoch` for times of CLOCK_MONOTONIC. */
uint64_t vb_wrap_capture_epoch_of_monotonic(void);
/* Why it could not be opened, in words. */
const char *vb_wrap_capture_problem(int error);

/* `comment`: NULL for none. What cannot be written is counted. The frame's number in the file; 0:
 * it is not there. */
uint32_t vb_wrap_capture_frame(struct vb_capture *capture, const struct vb_frame *frame,
                               enum vb_wrap_direction direction, const char *comment, uint64_t now);
/* The same of a frame of any kind. */
struct vb_capture_bytes {
    const uint8_t *bytes;
    uint32_t count;  /* that are there: the frame's first… */
    uint32_t length; /* …of so many */
};
void vb_wrap_capture_bytes(struct vb_capture *capture, const struct vb_capture_bytes *frame,
                           enum vb_wrap_direction direction, const char *comment, uint64_t now);
uint64_t vb_wrap_capture_lost(const struct vb_capture *capture);

/* What is known of a datagram that neither vb_packet nor vb_arrival says. */
struct vb_wrap_frame {
    uint16_t source_port;
    uint16_t ip_id;
    bool may_fragment;   /* IPv4: DF was not set */
    const uint8_t *icrc; /* as it came: 4 bytes; NULL: it was right */
};

/* `icrc_flip`: bits of the ICRC, as a number, that are wrong. `note`: why else it is remarkable. */
void vb_wrap_capture_packet(struct vb_capture *capture, const struct vb_packet *packet,
                            const struct vb_wrap_frame *frame, uint32_t icrc_flip, const char *note,
                            uint64_t now);
/* The same of a packet whose frame is made already: of `packet` its QP, its headers and the reason
 * are looked at. The comment says why it is sent again, and where the file has it first. */
void vb_wrap_capture_outgoing(struct vb_capture *capture, const struct vb_packet *packet,
                              const struct vb_frame *frame, const char *note, uint64_t now);
void vb_wrap_capture_arrival(struct vb_capture *capture, const struct vb_arrival *arrival,
                             const struct vb_wrap_frame *frame, uint32_t icrc_flip,
                             const char *note, uint64_t now);

#endif
