// SPDX-License-Identifier: Apache-2.0
/*
 * Nanoseconds of the ICRC's steps, each call waiting for the one before. Not a part of the
 * test-suite.
 *
 *     cc -O3 -D_GNU_SOURCE -Isrc/native -o build/bench_icrc tests/native/bench/bench_icrc.c \
 *         src/native/wire/icrc.c src/native/wire/crc32*.c -pthread && taskset -c 1 build/bench_icrc
 */
#include "wire/icrc.h"

#include <stdio.h>
#include <time.h>

enum { CALLS = 1 << 23, LENGTH = 1036 };

static struct vb_icrc_flow flow = {.target = {[10] = 0xff, 0xff, 10, 0, 0, 1}, .source_port = 1};
static uint8_t packet[LENGTH + 4];

static uint32_t start_of_a_flow(uint32_t before)
{
    flow.source_port = (uint16_t)before;
    return vb_wire_icrc_start_udp(&flow, LENGTH);
}

static uint32_t another_identification(uint32_t before)
{
    return vb_wire_icrc_with(before, (struct vb_icrc_unseen){(uint16_t)before, true});
}

static uint32_t acknowledgement(uint32_t before)
{
    packet[4] = 0;
    return vb_wire_icrc_transport(before, packet, 16);
}

static uint32_t acknowledgement_with_fecn(uint32_t before)
{
    packet[4] = 0x80;
    return vb_wire_icrc_transport(before, packet, 16);
}

static uint32_t explain(uint32_t before)
{
    struct vb_icrc_unseen unseen = {0, true};

    return before + (uint32_t)vb_wire_icrc_explain(before, ~before, LENGTH, &unseen) + unseen.id;
}

static uint32_t check_of_1_kib(uint32_t before)
{
    struct vb_icrc_unseen unseen = {(uint16_t)before, true};

    packet[4] = 0;
    return before + (uint32_t)vb_wire_icrc_check_ipv4(before, packet, LENGTH, &unseen);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void measure(const char *name, uint32_t (*step)(uint32_t))
{
    uint32_t value = vb_wire_icrc_with(0, (struct vb_icrc_unseen){1, true}); /* tables are made */
    double start = seconds();

    for (int i = 0; i < CALLS; i++)
        value = step(value);
    packet[0] = (uint8_t)value;
    printf("%-28s %6.1f ns\n", name, (seconds() - start) / CALLS * 1e9);
}

int main(void)
{
    measure("start of a flow", start_of_a_flow);
    measure("another identification", another_identification);
    measure("BTH and AETH", acknowledgement);
    measure("BTH and AETH with FECN", acknowledgement_with_fecn);
    measure("explain a difference", explain);
    measure("check 1 KiB, explain", check_of_1_kib);
    return 0;
}
