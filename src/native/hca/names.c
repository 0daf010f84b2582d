// SPDX-License-Identifier: Apache-2.0
/*
 * The names of numbers in sentences: states, types, opcodes, statuses, flags. decline.c and
 * sentences.c call it. A number without a name gives a text that says so.
 */
#include "hca/names.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "abi/verbs.h"

struct bit {
    uint64_t bit;
    const char *name;
};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* An entry of a table of names, or `other` where it has none. */
static const char *entry(const char *const *names, size_t count, uint64_t number, const char *other)
{
    return number < count && names[number] ? names[number] : other;
}

const char *vb_state_name(uint64_t state)
{
    static const char *const names[] = {
        [IBV_QPS_RESET] = "RESET", [IBV_QPS_INIT] = "INIT", [IBV_QPS_RTR] = "RTR",
        [IBV_QPS_RTS] = "RTS",     [IBV_QPS_SQD] = "SQD",   [IBV_QPS_SQE] = "SQE",
        [IBV_QPS_ERR] = "ERR",
    };

    return entry(names, COUNT(names), state, "no state");
}

const char *vb_type_name(uint64_t type)
{
    static const char *const names[] = {
        [IBV_QPT_RC] = "RC",
        [IBV_QPT_UC] = "UC",
        [IBV_QPT_UD] = "UD",
        [IBV_QPT_RAW_PACKET] = "RAW_PACKET",
        [IBV_QPT_XRC_SEND] = "XRC_SEND",
        [IBV_QPT_XRC_RECV] = "XRC_RECV",
    };

    return entry(names, COUNT(names), type, "unknown");
}

const char *vb_opcode_name(uint64_t opcode)
{
    static const char *const names[] = {
        [IBV_WR_RDMA_WRITE] = "RDMA_WRITE",
        [IBV_WR_RDMA_WRITE_WITH_IMM] = "RDMA_WRITE_WITH_IMM",
        [IBV_WR_SEND] = "SEND",
        [IBV_WR_SEND_WITH_IMM] = "SEND_WITH_IMM",
        [IBV_WR_RDMA_READ] = "RDMA_READ",
        [IBV_WR_ATOMIC_CMP_AND_SWP] = "ATOMIC_CMP_AND_SWP",
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = "ATOMIC_FETCH_AND_ADD",
        [IBV_WR_LOCAL_INV] = "LOCAL_INV",
        [IBV_WR_BIND_MW] = "BIND_MW",
        [IBV_WR_SEND_WITH_INV] = "SEND_WITH_INV",
        [IBV_WR_TSO] = "TSO",
        [IBV_WR_FLUSH] = "FLUSH",
        [IBV_WR_ATOMIC_WRITE] = "ATOMIC_WRITE",
    };

    return entry(names, COUNT(names), opcode, "unknown");
}

const char *vb_request_name(uint64_t opcode)
{
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return "WRITE";
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
        return "SEND";
    case IBV_WR_RDMA_READ:
        return "READ";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return "compare-and-swap";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return "fetch-and-add";
    case IBV_WR_ATOMIC_WRITE:
        return "atomic write";
    case IBV_WR_FLUSH:
        return "FLUSH";
    case IBV_WR_LOCAL_INV:
        return "LOCAL_INV";
    case IBV_WR_BIND_MW:
        return "BIND_MW";
    default:
        return "request";
    }
}

const char *vb_status_name(uint64_t status)
{
    static const char *const names[] = {
        [IBV_WC_SUCCESS] = "success",
        [IBV_WC_LOC_LEN_ERR] = "local length error",
        [IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
        [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "work request flushed",
        [IBV_WC_MW_BIND_ERR] = "memory window bind error",
        [IBV_WC_BAD_RESP_ERR] = "bad response",
        [IBV_WC_LOC_ACCESS_ERR] = "local access error",
        [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request",
        [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_REM_OP_ERR] = "remote operation error",
        [IBV_WC_RETRY_EXC_ERR] = "transport retry count exceeded",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "receiver not ready, retry count exceeded",
        [IBV_WC_GENERAL_ERR] = "general error",
    };

    return entry(names, COUNT(names), status, "error");
}

static void say_bits(struct vb_text *text, const struct bit *bits, size_t count, uint64_t value)
{
    const char *between = "";

    for (size_t i = 0; i < count; ++i)
        if (value & bits[i].bit) {
            vb_text_add(text, "%s%s", between, bits[i].name);
            between = "|";
            value &= ~bits[i].bit;
        }
    if (value || !*between)
        vb_text_add(text, "%s0x%" PRIx64, between, value);
}

void vb_say_access(struct vb_text *text, uint64_t access)
{
    static const struct bit bits[] = {
        {IBV_ACCESS_LOCAL_WRITE, "LOCAL_WRITE"},
        {IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE"},
        {IBV_ACCESS_REMOTE_READ, "REMOTE_READ"},
        {IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC"},
        {IBV_ACCESS_MW_BIND, "MW_BIND"},
        {IBV_ACCESS_ZERO_BASED, "ZERO_BASED"},
        {IBV_ACCESS_ON_DEMAND, "ON_DEMAND"},
        {IBV_ACCESS_HUGETLB, "HUGETLB"},
        {IBV_ACCESS_FLUSH_GLOBAL, "FLUSH_GLOBAL"},
        {IBV_ACCESS_FLUSH_PERSISTENT, "FLUSH_PERSISTENT"},
        {IBV_ACCESS_RELAXED_ORDERING, "RELAXED_ORDERING"},
    };

    say_bits(text, bits, COUNT(bits), access);
}

void vb_say_mask(struct vb_text *text, uint64_t mask)
{
#define BIT(name)                                                                                  \
    {                                                                                              \
        name, #name                                                                                \
    }
    static const struct bit bits[] = {
        BIT(IBV_QP_STATE),
        BIT(IBV_QP_CUR_STATE),
        BIT(IBV_QP_EN_SQD_ASYNC_NOTIFY),
        BIT(IBV_QP_ACCESS_FLAGS),
        BIT(IBV_QP_PKEY_INDEX),
        BIT(IBV_QP_PORT),
        BIT(IBV_QP_QKEY),
        BIT(IBV_QP_AV),
        BIT(IBV_QP_PATH_MTU),
        BIT(IBV_QP_TIMEOUT),
        BIT(IBV_QP_RETRY_CNT),
        BIT(IBV_QP_RNR_RETRY),
        BIT(IBV_QP_RQ_PSN),
        BIT(IBV_QP_MAX_QP_RD_ATOMIC),
        BIT(IBV_QP_ALT_PATH),
        BIT(IBV_QP_MIN_RNR_TIMER),
        BIT(IBV_QP_SQ_PSN),
        BIT(IBV_QP_MAX_DEST_RD_ATOMIC),
        BIT(IBV_QP_PATH_MIG_STATE),
        BIT(IBV_QP_CAP),
        BIT(IBV_QP_DEST_QPN),
        BIT(IBV_QP_RATE_LIMIT),
    };
#undef BIT

    say_bits(text, bits, COUNT(bits), mask);
}

void vb_say_version(struct vb_text *text, uint64_t characters)
{
    char name[sizeof(characters) + 1] = "";

    memcpy(name, &characters, sizeof(characters));
    for (char *at = name; *at; ++at)
        if (*at < '!' || *at > '~' || *at == '"' || *at == '\\') /* it may stand in JSON */
            *at = '?';
    if (*name)
        vb_text_add(text, "version %s", name);
    else
        vb_text_add(text, "an older version");
}

void vb_say_number(struct vb_text *text, char as, uint64_t number)
{
    switch (as) {
    case 'i':
        vb_text_add(text, "%" PRId64, (int64_t)number);
        break;
    case 'x':
        vb_text_add(text, "0x%" PRIx64, number);
        break;
    case 'n':
        vb_text_add(text, "%s", (const char *)(uintptr_t)number);
        break;
    case 's':
        vb_text_add(text, "%s", vb_state_name(number));
        break;
    case 't':
        vb_text_add(text, "%s", vb_type_name(number));
        break;
    case 'o':
        vb_text_add(text, "%s", vb_opcode_name(number));
        break;
    case 'a':
        vb_say_access(text, number);
        break;
    case 'v':
        vb_say_version(text, number);
        break;
    case 'm':
        vb_say_mask(text, number);
        break;
    default:
        vb_text_add(text, "%" PRIu64, number);
    }
}
