// SPDX-License-Identifier: Apache-2.0
/* Prints the adapter's table of QP transitions as CSV: type, from, to, required, optional. */
#include <stdio.h>

#include "hca/qp_states.h"

static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

#define NAMED(name) {IBV_QP_##name, #name}
static const struct {
    int bit;
    const char *name;
} attributes[] = {
    NAMED(CUR_STATE),
    NAMED(EN_SQD_ASYNC_NOTIFY),
    NAMED(ACCESS_FLAGS),
    NAMED(PKEY_INDEX),
    NAMED(PORT),
    NAMED(QKEY),
    NAMED(AV),
    NAMED(PATH_MTU),
    NAMED(TIMEOUT),
    NAMED(RETRY_CNT),
    NAMED(RNR_RETRY),
    NAMED(RQ_PSN),
    NAMED(SQ_PSN),
    NAMED(MAX_QP_RD_ATOMIC),
    NAMED(MAX_DEST_RD_ATOMIC),
    NAMED(MIN_RNR_TIMER),
    NAMED(ALT_PATH),
    NAMED(PATH_MIG_STATE),
    NAMED(RATE_LIMIT),
    NAMED(DEST_QPN),
};

static void print_mask(int mask)
{
    const char *between = "";

    putchar(',');
    for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); ++i)
        if (mask & attributes[i].bit) {
            printf("%s%s", between, attributes[i].name);
            between = " ";
        }
}

static void print_type(const char *name, enum ibv_qp_type type)
{
    int count;
    const struct vb_transition *table = vb_qp_transitions(type, &count);

    for (int i = 0; i < count; ++i) {
        printf("%s,%s,%s", name, states[table[i].from], states[table[i].to]);
        print_mask(table[i].required);
        print_mask(table[i].optional);
        putchar('\n');
    }
}

int main(void)
{
    puts("type,from,to,required,optional");
    print_type("RC", IBV_QPT_RC);
    print_type("UC", IBV_QPT_UC);
    print_type("UD", IBV_QPT_UD);
    print_type("XRC_SEND", IBV_QPT_XRC_SEND);
    print_type("XRC_RECV", IBV_QPT_XRC_RECV);
    return 0;
}
