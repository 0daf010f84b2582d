// SPDX-License-Identifier: Apache-2.0
/*
 * What a process keeps of others that have another memory layout (direct/other_build.h): the last
 * of them by each of their slots, what calls and requests to them say, and the one line about what
 * is lost. The test writes their first messages.
 */
#include <unistd.h>

#include "check.h"
#include "direct/direct.h"
#include "direct/other_build.h"
#include "end.h"
#include "hca/sentences.h"

enum { TEXT = 4096, FIRST_SLOT = 100, LAYOUT = 5 };

static struct end end;
static char line[TEXT];
static int lines;

static void hear(const char *text)
{
    ++lines;
    snprintf(line, sizeof(line), "%s", text);
}

static void begin(enum ibv_qp_type type)
{
    end_open(&end, (struct end_options){.type = type});
    end_add_qp(&end);
    end.direct->adapter->tell = hear;
    lines = 0;
    line[0] = '\0';
}

static void finish(void)
{
    end.direct->adapter->tell = NULL;
    end_close(&end);
}

static void note(uint32_t slot, uint32_t second, uint32_t layout, const char *package)
{
    struct vb_message hello = {.type = VB_MSG_HELLO};

    hello.hello.slots[0] = slot;
    hello.hello.slots[1] = second;
    hello.hello.version = layout;
    strncpy(hello.package, package, sizeof(hello.package));
    vb_direct_other_build_note(end.direct, &hello);
}

/* The layout of the process that has the slot; 0: none is known. */
static uint32_t layout_at(uint32_t slot)
{
    struct vb_other_build found;
    uint32_t qp_num = slot * VB_QPS_PER_SLOT + 7;

    return vb_direct_other_build_find(end.direct, qp_num, &found) ? found.layout : 0;
}

static const char *described(void)
{
    static char json[TEXT];
    struct vb_text text = {json, sizeof(json), 0};

    vb_direct_other_build_describe(end.direct, &text);
    return json;
}

static void the_last_ones_are_kept(void)
{
    const uint32_t most = VB_OTHER_BUILDS;

    begin(IBV_QPT_RC);
    CHECK_EQ(strcmp(described(), "\"other_builds\":[]"), 0);
    CHECK_EQ(layout_at(0), 0);
    for (uint32_t i = 0; i <= most; ++i) {
        note(FIRST_SLOT + i, FIRST_SLOT + 500 + i, 1 + i, "1.2");
        for (uint32_t j = 0; j <= most; ++j) {
            bool is_kept = j <= i && (i < most || j > 0);

            CHECK_EQ(layout_at(FIRST_SLOT + j), is_kept ? 1 + j : 0);
            CHECK_EQ(layout_at(FIRST_SLOT + 500 + j), is_kept ? 1 + j : 0);
        }
    }
    CHECK_EQ(layout_at(0), 0); /* a slot that it does not have */
    CHECK_EQ(layout_at(FIRST_SLOT - 1), 0);
    finish();
}

/* A process says hello several times, and its slot may be another process's later. */
static void a_slot_has_one_entry(void)
{
    begin(IBV_QPT_RC);
    note(FIRST_SLOT, 0, 1, "1.2");
    note(FIRST_SLOT + 1, 0, 2, "1.3.1-x"); /* as long as a name can be, but one */
    note(FIRST_SLOT, FIRST_SLOT + 9, 3, "");
    CHECK_EQ(layout_at(FIRST_SLOT), 3);
    CHECK_EQ(layout_at(FIRST_SLOT + 9), 3);
    CHECK_EQ(layout_at(FIRST_SLOT + 1), 2);
    CHECK_EQ(
        strcmp(described(),
               "\"other_builds\":[{\"slot\":100,\"build\":\"an older version with memory layout "
               "3\"},{\"slot\":101,\"build\":\"version 1.3.1-x with memory layout 2\"}]"),
        0);
    vb_direct_other_build_forget(end.direct, FIRST_SLOT + 2);
    vb_direct_other_build_forget(end.direct, 0);
    CHECK_EQ(layout_at(FIRST_SLOT), 3);
    vb_direct_other_build_forget(end.direct, FIRST_SLOT + 9); /* by its second one */
    CHECK_EQ(layout_at(FIRST_SLOT), 0);
    CHECK_EQ(layout_at(FIRST_SLOT + 9), 0);
    CHECK_EQ(layout_at(FIRST_SLOT + 1), 2);
    finish();
}

static uint32_t qp_of(uint32_t slot)
{
    return slot * VB_QPS_PER_SLOT + 3;
}

/* The QP's other end: a QP of that slot here, or with the same number on another host. */
static void aim(uint32_t slot, bool is_here)
{
    struct vb_qp other = {.number = qp_of(slot)};

    end_ready(end.qp, end.qp->type == IBV_QPT_UD ? NULL : &other);
    if (!is_here)
        end.qp->verbs->attr.ah_attr.grh.dgid.raw[15] ^= 0x55;
}

static void names_both(const char *text, const char *build)
{
    CHECK(strstr(text, build) != NULL);
    CHECK(strstr(text, VERBENA_VERSION) != NULL);
    CHECK(strstr(text, "Install one build") != NULL);
}

static void calls_and_requests_name_both_builds(void)
{
    static const struct {
        uint32_t slot;
        bool is_here, is_known;
    } cases[] = {
        {FIRST_SLOT, true, true},
        {FIRST_SLOT, false, false},
        {FIRST_SLOT + 1, true, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
        struct vb_outcome outcome = {.status = IBV_WC_SUCCESS};
        char why[TEXT] = "";

        begin(IBV_QPT_RC);
        aim(cases[i].slot, cases[i].is_here);
        CHECK_EQ(vb_direct_other_build_check(end.qp), 0);
        note(FIRST_SLOT, 0, LAYOUT, "1.2");
        CHECK_EQ(vb_direct_other_build_check(end.qp), cases[i].is_known ? -EPROTONOSUPPORT : 0);
        if (cases[i].is_known) {
            CHECK(vb_decline_text(end.context, -EPROTONOSUPPORT, why, sizeof(why)) > 0);
            names_both(why, "version 1.2 with memory layout 5");
        }
        vb_sq_lock(end.qp);
        CHECK_EQ(vb_direct_other_build_refuse(end.qp, &wr, &outcome), cases[i].is_known);
        vb_sq_unlock(end.qp);
        CHECK_EQ(outcome.status, cases[i].is_known ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
        if (cases[i].is_known) {
            CHECK(vb_evidence_text(&end.direct->adapter->self, outcome.evidence, why, sizeof(why)) >
                  0);
            names_both(why, "version 1.2 with memory layout 5");
        }
        finish();
    }
}

/* Of UD the address was looked at before; a UC QP's may be on another host. */
static void what_is_lost_is_told_once(void)
{
    static const enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_UD};

    for (int i = 0; i < 4; ++i) {
        bool is_here = i / 2 == 0, is_told = is_here || types[i % 2] == IBV_QPT_UD;

        begin(types[i % 2]);
        aim(FIRST_SLOT, is_here);
        vb_direct_other_build_log(end.qp, qp_of(FIRST_SLOT));
        CHECK_EQ(lines, 0);
        note(FIRST_SLOT, 0, LAYOUT, "1.2");
        end.direct->adapter->tell = NULL; /* nobody listens: it is news later */
        vb_direct_other_build_log(end.qp, qp_of(FIRST_SLOT));
        end.direct->adapter->tell = hear;
        vb_direct_other_build_log(end.qp, qp_of(FIRST_SLOT + 1));
        CHECK_EQ(lines, 0);
        for (int times = 0; times < 3; ++times)
            vb_direct_other_build_log(end.qp, qp_of(FIRST_SLOT));
        CHECK_EQ(lines, is_told);
        if (is_told)
            names_both(line, "version 1.2 with memory layout 5");
        note(FIRST_SLOT, 0, LAYOUT, "1.2"); /* it says hello again */
        vb_direct_other_build_log(end.qp, qp_of(FIRST_SLOT));
        CHECK_EQ(lines, is_told);
        vb_direct_other_build_forget(end.direct, FIRST_SLOT);
        note(FIRST_SLOT, 0, LAYOUT, "1.2"); /* another process */
        vb_direct_other_build_log(end.qp, qp_of(FIRST_SLOT));
        CHECK_EQ(lines, 2 * is_told);
        finish();
    }
}

int main(void)
{
    alarm(100);
    RUN(the_last_ones_are_kept);
    RUN(a_slot_has_one_entry);
    RUN(calls_and_requests_name_both_builds);
    RUN(what_is_lost_is_told_once);
    return 0;
}
