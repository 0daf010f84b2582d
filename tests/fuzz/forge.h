// SPDX-License-Identifier: Apache-2.0
/* Packets made of a fuzzer's choices: near enough to real ones to get past the first checks. */
#ifndef VB_TESTS_FUZZ_FORGE_H
#define VB_TESTS_FUZZ_FORGE_H

#include "input.h"
#include "world.h"

enum { FORGED_MAX = 1024 };

struct forged {
    uint8_t bytes[FORGED_MAX];
    uint32_t length;
    bool stranger; /* comes from an address that is no peer's */
};

/* Any bytes; what is long enough goes to this QP, if the input says so. */
void forge_raw(struct input *input, const struct vb_qp *to, struct forged *forged);
void forge_packet(struct input *input, const struct world *world, const struct vb_qp *to,
                  bool response, struct forged *forged);

/* An address and a key for a request to that side: right, wrong or nearly right. */
uint64_t forge_address(struct input *input, const struct world *world, int side);
uint32_t forge_key(struct input *input, const struct world *world, int side);
/* An XRC SRQ's number, likewise. */
uint32_t forge_srq(struct input *input, const struct world *world);

#endif
