// SPDX-License-Identifier: Apache-2.0
/*
 * What the carrier has counted, as text: JSON of all counters, and a log line of what was refused
 * lately. host/host.c and roce.c call it; the counters are read under the lock, or approximately.
 */
#include <stdio.h>
#include <string.h>

#include "hca/counters.h"
#include "hca/lost.h"
#include "hca/text.h"
#include "roce/state.h"
#include "transport/responder.h"

enum { UDP_FIRST = VB_COUNTER_COUNT, REUSEPORT_FIRST = UDP_FIRST + VB_UDP_COUNTS };

_Static_assert(REUSEPORT_FIRST + (int)VB_REUSEPORT_COUNTS == (int)VB_ROCE_COUNTS,
               "one place for each");

static uint64_t value_of(const struct vb_roce *roce, uint32_t n)
{
    uint64_t value;

    if (!roce)
        return 0;
    if (n >= REUSEPORT_FIRST)
        return vb_roce_reuseport_counter(roce->reuseport, n - REUSEPORT_FIRST);
    if (n >= UDP_FIRST)
        return vb_roce_udp_counter(roce->udp, n - UDP_FIRST);
    memcpy(&value, (const char *)vb_engine_counters(roce->engine) + n * sizeof(value),
           sizeof(value));
    return value;
}

static const char *describe_name_of(uint32_t n)
{
    if (n >= REUSEPORT_FIRST)
        return vb_roce_reuseport_counter_name(n - REUSEPORT_FIRST);
    if (n >= UDP_FIRST)
        return vb_roce_udp_counter_name(n - UDP_FIRST);
    return vb_counter_names[n].name;
}

static const struct {
    const char *name;
    uint32_t first, end;
} parts[] = {
    {"engine", 0, UDP_FIRST},
    {"udp", UDP_FIRST, REUSEPORT_FIRST},
    {"reuseport", REUSEPORT_FIRST, VB_ROCE_COUNTS},
};

enum { PARTS = sizeof(parts) / sizeof(*parts) };

/* The counter, with what was dropped of datagrams that went without packets. */
static uint64_t counted(const struct vb_roce *roce, const struct vb_adapter *adapter, uint32_t n)
{
    return value_of(roce, n) + (n < UDP_FIRST ? vb_lost_counted(adapter, n) : 0);
}

static void put_part(struct vb_text *text, const struct vb_roce *roce,
                     const struct vb_adapter *adapter, int part, bool all)
{
    const char *between = "";

    vb_text_add(text, "%s\"%s\":{", part ? "," : "", parts[part].name);
    for (uint32_t n = parts[part].first; n < parts[part].end; ++n) {
        uint64_t value = counted(roce, adapter, n);

        if (!value && !all)
            continue;
        vb_text_add(text, "%s\"%s\":%llu", between, describe_name_of(n), (unsigned long long)value);
        between = ",";
    }
    vb_text_add(text, "}");
}

static void put_parts(struct vb_text *text, const struct vb_roce *roce,
                      const struct vb_adapter *adapter, bool all)
{
    for (int part = 0; part < PARTS; ++part)
        put_part(text, roce, adapter, part, all);
}

int vb_roce_describe(struct vb_roce *roce, char *json, size_t size)
{
    struct vb_text text = {json, size, 0};

    vb_roce_enter(roce);
    vb_text_add(&text, "\"counters\":{");
    put_parts(&text, roce, roce->config.adapter, false);
    vb_text_add(&text, "}");
    vb_roce_leave(roce);
    return text.length;
}

void vb_roce_counters(const struct vb_roce *roce, const struct vb_adapter *adapter,
                      struct vb_text *text)
{
    put_parts(text, roce, adapter, true);
}

void vb_roce_tell_counters(const struct vb_roce *roce, const struct vb_adapter *adapter,
                           vb_tell_counter *tell)
{
    for (int part = 0; part < PARTS; ++part)
        for (uint32_t n = parts[part].first; n < parts[part].end; ++n)
            if (counted(roce, adapter, n))
                tell(parts[part].name, describe_name_of(n), counted(roce, adapter, n));
}

/* ---- refusals ---- */

enum { PAUSE_NS = 1000000000, PATH_TEXT = 256 };

static bool is_refusal(uint32_t n)
{
    static const char *const beginnings[] = {"drop_", "refused_", "bad_", "receive_bad_",
                                             "duplicate_requests"};

    for (size_t i = 0; i < sizeof(beginnings) / sizeof(*beginnings); ++i)
        if (strncmp(describe_name_of(n), beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

void vb_roce_log_refusals(struct vb_roce *roce, uint64_t now)
{
    struct vb_roce_log *log = &roce->log;
    char line[512];
    struct vb_text text = {line, sizeof(line), 0};

    if (!roce->config.log || (log->at && now - log->at < PAUSE_NS))
        return;
    for (uint32_t n = 0; n < VB_ROCE_COUNTS; ++n) {
        uint64_t value = value_of(roce, n), more = value - log->told[n];

        log->told[n] = value;
        if (more && is_refusal(n))
            vb_text_add(&text, "%s%s +%llu", text.length ? ", " : "", describe_name_of(n),
                        (unsigned long long)more);
    }
    if (!text.length)
        return;
    log->at = now;
    roce->config.log(roce->config.argument, line);
}

/*
 * Why a connection's request was refused if no counter says it: by the responder's path through its
 * states.
 */
static const char *why_on_its_way(const struct vb_roce *roce, bool is_kept)
{
    char path[PATH_TEXT];

    vb_engine_responder_path(roce->engine, path, sizeof(path));
    if (strstr(path, "NOT_READY"))
        return "refused: no receive request (RNR NAK)";
    if (strstr(path, "OUT_OF_SEQUENCE"))
        return is_kept ? "out of sequence: kept until what is missing comes"
                       : "dropped: out of sequence, a packet before it is missing";
    return strstr(path, "REFUSE") ? "refused: see the NAK" : NULL;
}

const char *vb_roce_why(const struct vb_roce *roce, const struct vb_counters *before,
                        uint8_t opcode, char *words, size_t size)
{
    uint8_t transport = opcode & VB_TRANSPORT_MASK;
    uint64_t earlier;

    for (uint32_t n = 0; n < VB_COUNTER_COUNT; ++n) {
        memcpy(&earlier, (const char *)before + n * sizeof(earlier), sizeof(earlier));
        if (value_of(roce, n) == earlier || !is_refusal(n))
            continue;
        snprintf(words, size, "%s: %s (%s)",
                 strncmp(describe_name_of(n), "drop_", 5) == 0 ? "dropped"
                 : strncmp(describe_name_of(n), "dup", 3) == 0 ? "duplicate"
                                                               : "refused",
                 vb_counter_names[n].meaning, describe_name_of(n));
        return words;
    }
    if ((transport != VB_TRANSPORT_RC && transport != VB_TRANSPORT_XRC) ||
        vb_opcodes[opcode].flags & VB_OPCODE_RESPONSE)
        return NULL;
    return why_on_its_way(roce,
                          vb_engine_counters(roce->engine)->packets_held != before->packets_held);
}
