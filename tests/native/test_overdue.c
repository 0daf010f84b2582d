// SPDX-License-Identifier: Apache-2.0
/*
 * What waits is told of after a second, and not before: the clock is read by one thread and a wait
 * begun by another, so that a wait can begin after the time at which somebody looks.
 */
#include "hca/overdue.h"

#include "check.h"
#include "hca/hca.h"
#include "hca/vigil.h"
#include "loopback.h"

enum { SOON = 1000 }; /* ns */

static struct loopback loop;
static int told;

static void tell(const char *line)
{
    printf("  %s\n", line);
    ++told;
}

static uint64_t now(void)
{
    const struct vb_adapter *adapter = loop.direct->adapter;

    return adapter->calls->now(adapter);
}

static void a_request_that_waits_since_a_moment_to_come(void)
{
    struct vb_qp *qp = loop.qp[0];
    uint64_t at = now();

    vb_overdue_note(qp, VB_WAIT_RNR, 0, at + SOON, at);
    CHECK_EQ(told, 0);
    vb_overdue_note(qp, VB_WAIT_RNR, 0, at - VB_OVERDUE_NS, at);
    CHECK_EQ(told, 1);
}

static void a_channel_that_waits_since_a_moment_to_come(void)
{
    struct vb_adapter *adapter = loop.direct->adapter;
    struct vb_channel *channel;
    struct vb_vigil vigil;

    CHECK_EQ(vb_channel_create(loop.context, &channel), 0);
    told = 0;
    vb_vigil_begin(&vigil, channel);
    CHECK(vb_vigils_look(adapter, vigil.since - SOON)); /* it is still to be looked after */
    CHECK_EQ(told, 0);
    CHECK(!vb_vigils_look(adapter, vigil.since + VB_OVERDUE_NS));
    CHECK_EQ(told, 1);
    vb_vigil_end(&vigil);
    CHECK_EQ(vb_channel_destroy(channel), 0);
}

int main(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    loop.direct->adapter->tell = tell;
    RUN(a_request_that_waits_since_a_moment_to_come);
    RUN(a_channel_that_waits_since_a_moment_to_come);
    loopback_close(&loop);
    return 0;
}
