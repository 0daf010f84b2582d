// SPDX-License-Identifier: Apache-2.0
/* The reuseport program, run by a small interpreter as the kernel would. */
#include "check.h"
#include "hca/layout.h"
#include "roce/bpf.h"

enum { OTHERS = 1234 };

static struct sock_filter program[VB_BPF_MAX];
static struct vb_reuseport_entry entries[VB_SLOTS];

static uint32_t run(unsigned length, uint32_t qp_word)
{
    uint32_t a = 0;

    for (unsigned at = 0; at < length; ++at) {
        const struct sock_filter *i = &program[at];

        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            CHECK_EQ(i->k, 4);
            a = qp_word;
            break;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= i->k;
            break;
        case BPF_ALU | BPF_RSH | BPF_K:
            a >>= i->k;
            break;
        case BPF_JMP | BPF_JA:
            at += i->k;
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            at += a == i->k ? i->jt : i->jf;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            at += a >= i->k ? i->jt : i->jf;
            break;
        case BPF_RET | BPF_K:
            return i->k;
        case BPF_RET | BPF_A:
            return a;
        default:
            CHECK(!"an instruction that the program does not need");
        }
    }
    CHECK(!"the end of the program");
    return 0;
}

/* Every third slot from 1 on; all others go to one index. */
static void selects(unsigned count)
{
    unsigned length;

    for (unsigned i = 0; i < count; ++i)
        entries[i] = (struct vb_reuseport_entry){(uint16_t)(1 + 3 * i), (uint16_t)(i * 7 % 1000)};
    length = vb_roce_bpf_make(entries, count, OTHERS, program);
    CHECK(length > 0 && length < 20 + 3 * count);
    for (uint32_t slot = 1; slot < VB_SLOTS; ++slot) {
        uint32_t index = run(length, 0xab000000u | slot << VB_SLOT_BITS | (slot * 37 & 0xfff));
        bool is_known = slot % 3 == 1 && slot / 3 < count;

        CHECK_EQ(index, is_known ? entries[slot / 3].index : OTHERS);
    }
}

static void test_slots(void)
{
    static const unsigned counts[] = {0, 1, 2, 3, 4, 5, 8, 9, 31, 100, 333, 800, 1300};

    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); ++i)
        selects(counts[i]);
}

static void test_probes(void)
{
    unsigned length;

    entries[0] = (struct vb_reuseport_entry){5, 3};
    length = vb_roce_bpf_make(entries, 1, OTHERS, program);
    for (uint32_t i = 0; i < VB_PROBE_INDICES; ++i)
        CHECK_EQ(run(length, VB_PROBE_QPN + i), i);
    for (uint32_t qp = 0; qp < VB_PROBE_QPN; ++qp)
        CHECK_EQ(run(length, qp), UINT32_MAX);
}

static void test_too_many(void)
{
    for (unsigned i = 0; i < VB_SLOTS - 1; ++i)
        entries[i] = (struct vb_reuseport_entry){(uint16_t)(i + 1), 1};
    CHECK_EQ(vb_roce_bpf_make(entries, VB_SLOTS - 1, OTHERS, program), 0);
}

int main(void)
{
    RUN(test_slots);
    RUN(test_probes);
    RUN(test_too_many);
    return 0;
}
