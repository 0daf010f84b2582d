// SPDX-License-Identifier: Apache-2.0
/*
 * The path record of <infiniband/sa.h>. librdmacm calls ibv_copy_path_rec_from_kern and its like in
 * libibverbs to convert one (dropin), with this layout.
 */
#ifndef VB_ABI_PATH_H
#define VB_ABI_PATH_H

#include "abi/device.h"

struct ibv_sa_path_rec {
    union ibv_gid dgid;
    union ibv_gid sgid;
    __be16 dlid;
    __be16 slid;
    int raw_traffic;
    __be32 flow_label;
    uint8_t hop_limit;
    uint8_t traffic_class;
    int reversible;
    uint8_t numb_path;
    __be16 pkey;
    uint8_t sl;
    uint8_t mtu_selector;
    uint8_t mtu;
    uint8_t rate_selector;
    uint8_t rate;
    uint8_t packet_life_time_selector;
    uint8_t packet_life_time;
    uint8_t preference;
};

#endif
