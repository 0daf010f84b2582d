// SPDX-License-Identifier: Apache-2.0
/*
 * Conversions between enum ibv_rate, multiples of 2.5 Gbit/s and Mbit/s. Programs call them; the
 * numbers are libibverbs'.
 */
#include <stddef.h>

#include "abi/calls.h"
#include "dropin/export.h"

/* `mult` is the multiple of 2.5 Gbit/s that libibverbs gives, or 0 if it gives none. */
static const struct {
    int mbps;
    int mult;
} rates[] = {
    [IBV_RATE_2_5_GBPS] = {2500, 1},       [IBV_RATE_5_GBPS] = {5000, 2},
    [IBV_RATE_10_GBPS] = {10000, 4},       [IBV_RATE_14_GBPS] = {14062, 0},
    [IBV_RATE_20_GBPS] = {20000, 8},       [IBV_RATE_25_GBPS] = {25781, 0},
    [IBV_RATE_28_GBPS] = {28125, 11},      [IBV_RATE_30_GBPS] = {30000, 12},
    [IBV_RATE_40_GBPS] = {40000, 16},      [IBV_RATE_50_GBPS] = {53125, 20},
    [IBV_RATE_56_GBPS] = {56250, 0},       [IBV_RATE_60_GBPS] = {60000, 24},
    [IBV_RATE_80_GBPS] = {80000, 32},      [IBV_RATE_100_GBPS] = {103125, 0},
    [IBV_RATE_112_GBPS] = {112500, 0},     [IBV_RATE_120_GBPS] = {120000, 48},
    [IBV_RATE_168_GBPS] = {168750, 0},     [IBV_RATE_200_GBPS] = {206250, 0},
    [IBV_RATE_300_GBPS] = {309375, 0},     [IBV_RATE_400_GBPS] = {425000, 160},
    [IBV_RATE_600_GBPS] = {637500, 240},   [IBV_RATE_800_GBPS] = {850000, 320},
    [IBV_RATE_1200_GBPS] = {1275000, 480},
};

enum { RATES = sizeof(rates) / sizeof(rates[0]) };

VB_EXPORT int ibv_rate_to_mult(enum ibv_rate rate)
{
    return (unsigned)rate < RATES && rates[rate].mult ? rates[rate].mult : -1;
}

VB_EXPORT int ibv_rate_to_mbps(enum ibv_rate rate)
{
    return (unsigned)rate < RATES && rates[rate].mbps ? rates[rate].mbps : -1;
}

VB_EXPORT enum ibv_rate mult_to_ibv_rate(int mult)
{
    for (int rate = 0; rate < RATES; ++rate)
        if (mult > 0 && rates[rate].mult == mult)
            return (enum ibv_rate)rate;
    return IBV_RATE_MAX;
}

VB_EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps)
{
    for (int rate = 0; rate < RATES; ++rate)
        if (mbps > 0 && rates[rate].mbps == mbps)
            return (enum ibv_rate)rate;
    return IBV_RATE_MAX;
}
