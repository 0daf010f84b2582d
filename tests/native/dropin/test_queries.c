// SPDX-License-Identifier: Apache-2.0
/* Queries, with the struct sizes of older and newer callers, and their errors. */
#include <infiniband/verbs.h>

#include "dropin/verbena.h"
#include "pair.h"

static struct ibv_context *context;

/* The exported function behind the macro of the same name. */
int(ibv_query_port)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *);

static void devices_keep_their_pointer(void)
{
    struct ibv_device **first = ibv_get_device_list(NULL), **second;
    int count = 0;

    second = ibv_get_device_list(&count);
    CHECK_EQ(count, 1);
    CHECK(first[0] == second[0] && first[0] == context->device && !first[1]);
    CHECK_EQ(strcmp(ibv_get_device_name(first[0]), "verbena0"), 0);
    CHECK_EQ(strcmp(first[0]->dev_name, "uverbs0"), 0);
    CHECK_EQ(first[0]->node_type, IBV_NODE_CA);
    CHECK_EQ(first[0]->transport_type, IBV_TRANSPORT_IB);
    ibv_free_device_list(first);
    ibv_free_device_list(second);
}

static void the_exported_query_port_fills_48_bytes(void)
{
    uint8_t attr[64];
    struct ibv_port_attr *port = (struct ibv_port_attr *)attr;

    memset(attr, 0xa5, sizeof(attr));
    CHECK_EQ((ibv_query_port)(context, 1, (struct _compat_ibv_port_attr *)attr), 0);
    CHECK_EQ(port->state, IBV_PORT_ACTIVE);
    CHECK_EQ(port->link_layer, IBV_LINK_LAYER_ETHERNET);
    CHECK_EQ(port->flags, IBV_QPF_GRH_REQUIRED);
    for (size_t i = 48; i < sizeof(attr); ++i)
        CHECK_EQ(attr[i], 0xa5);
}

static void the_inline_query_port_fills_the_callers_size(void)
{
    struct verbs_context *verbs = verbs_get_ctx(context);
    uint8_t attr[80];

    for (size_t size = 48; size <= 72; size += 4) {
        memset(attr, 0xa5, sizeof(attr));
        CHECK_EQ(verbs->query_port(context, 1, (struct ibv_port_attr *)attr, size), 0);
        CHECK_EQ(attr[46], IBV_LINK_LAYER_ETHERNET);
        for (size_t i = 56; i < size; ++i)
            CHECK_EQ(attr[i], 0); /* fields of a future release */
        for (size_t i = size; i < sizeof(attr); ++i)
            CHECK_EQ(attr[i], 0xa5);
    }
}

static void other_ports_are_refused(void)
{
    struct ibv_port_attr attr;
    union ibv_gid gid;
    char why[256];
    __be16 pkey;

    CHECK_EQ(ibv_query_port(context, 0, &attr), EINVAL);
    CHECK_EQ(ibv_query_port(context, 2, &attr), EINVAL);
    CHECK(verbena_why(context, EINVAL, why, sizeof(why)) > 0);
    CHECK_EQ(strcmp(why, "ports count from 1 and the device has one: 2 is none"), 0);
    CHECK_EQ(ibv_query_gid(context, 2, 0, &gid), -1);
    CHECK_EQ(ibv_query_pkey(context, 2, 0, &pkey), -1);
}

static void query_device_ex_fills_the_callers_size(void)
{
    struct ibv_query_device_ex_input input = {.comp_mask = 1};
    struct verbs_context *verbs = verbs_get_ctx(context);
    struct ibv_device_attr_ex attr;
    uint8_t large[sizeof(attr) + 16];

    memset(large, 0xa5, sizeof(large));
    CHECK_EQ(verbs->query_device_ex(context, NULL, (void *)large, sizeof(attr.orig_attr) + 8), 0);
    CHECK_EQ(((struct ibv_device_attr *)large)->phys_port_cnt, 1);
    CHECK_EQ(large[sizeof(attr.orig_attr) + 7], 0);
    CHECK_EQ(large[sizeof(attr.orig_attr) + 8], 0xa5);
    CHECK_EQ(verbs->query_device_ex(context, NULL, (void *)large, sizeof(large)), 0);
    CHECK_EQ(large[sizeof(large) - 1], 0);
    CHECK_EQ(verbs->query_device_ex(context, &input, &attr, sizeof(attr)), EINVAL);
    CHECK_EQ(verbs->query_device_ex(context, NULL, &attr, 8), EINVAL);
}

static void gids(void)
{
    struct ibv_gid_entry entry, table[256];
    struct ibv_port_attr port;
    union ibv_gid gid;
    ssize_t count;

    CHECK_EQ(ibv_query_port(context, 1, &port), 0);
    count = ibv_query_gid_table(context, table, 256, 0);
    CHECK_EQ(port.gid_tbl_len, 256);
    CHECK(count >= 2 && count < 256);
    for (ssize_t i = 0; i < count; ++i) {
        CHECK_EQ(ibv_query_gid(context, 1, (int)i, &gid), 0);
        CHECK_EQ(memcmp(&gid, &table[i].gid, sizeof(gid)), 0);
        CHECK_EQ(ibv_query_gid_ex(context, 1, (uint32_t)i, &entry, 0), 0);
        CHECK_EQ(memcmp(&entry, &table[i], sizeof(entry)), 0);
    }
    CHECK_EQ(table[0].gid_type, IBV_GID_TYPE_ROCE_V2);
    CHECK_EQ(table[1].gid_type, IBV_GID_TYPE_ROCE_V2);
    CHECK_EQ(ibv_query_gid(context, 1, 255, &gid), 0); /* empty */
    CHECK(!gid.global.subnet_prefix && !gid.global.interface_id);
    CHECK_EQ(ibv_query_gid_ex(context, 1, 255, &entry, 0), ENODATA);
    CHECK_EQ(ibv_query_gid(context, 1, 256, &gid), -1);
    CHECK_EQ(ibv_query_gid(context, 1, -1, &gid), -1);
    CHECK_EQ(ibv_query_gid_ex(context, 1, 256, &entry, 0), EINVAL);
    CHECK_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 1), EOPNOTSUPP);
    CHECK_EQ(ibv_query_gid_table(context, table, 1, 0), -EINVAL);
}

static void pkeys(void)
{
    __be16 pkey = 0;

    CHECK_EQ(ibv_query_pkey(context, 1, 0, &pkey), 0);
    CHECK_EQ(be16toh(pkey), 0xffff);
    CHECK_EQ(ibv_query_pkey(context, 1, 31, &pkey), 0);
    CHECK_EQ(pkey, 0);
    CHECK_EQ(ibv_query_pkey(context, 1, 32, &pkey), -1);
    CHECK_EQ(ibv_get_pkey_index(context, 1, htobe16(0xffff)), 0);
    CHECK_EQ(ibv_get_pkey_index(context, 1, htobe16(0x7fff)), -1);
}

/* What is not offered says so, whichever way it is called. */
static void calls_not_offered(void)
{
    struct ibv_pd *pd = ibv_alloc_pd(context);

    CHECK(pd);
    CHECK(!ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0) && errno == EOPNOTSUPP);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

static void optional_access_flags_are_ignored(void)
{
    struct ibv_pd *pd = ibv_alloc_pd(context);
    char byte;
    struct ibv_mr *mr = ibv_reg_mr(pd, &byte, 1, IBV_ACCESS_RELAXED_ORDERING);

    CHECK(mr);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

int main(void)
{
    context = pair_open_device();
    RUN(devices_keep_their_pointer);
    RUN(the_exported_query_port_fills_48_bytes);
    RUN(the_inline_query_port_fills_the_callers_size);
    RUN(other_ports_are_refused);
    RUN(query_device_ex_fills_the_callers_size);
    RUN(gids);
    RUN(pkeys);
    RUN(calls_not_offered);
    RUN(optional_access_flags_are_ignored);
    CHECK_EQ(ibv_close_device(context), 0);
    return 0;
}
