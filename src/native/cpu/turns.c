// SPDX-License-Identifier: Apache-2.0
/* Turns of several cores, and the second half of instructions that load and store one place. */
#include "cpu/turns.h"

#include "cpu/paging.h"

bool vb_cpu_keep_store(struct vb_cpu *cpu, uint64_t linear, uint32_t size, const void *value)
{
    const struct vb_cpu_translation *t =
        &cpu->translation[linear >> VB_CPU_PAGE_SHIFT & (VB_CPU_TRANSLATIONS - 1)];
    bool is_plain = vb_cpu_fast_bytes(cpu, linear, size, VB_CPU_MAY_WRITE) != NULL && t->stores;

    /* A device, code, or a page for which the store has to look first: it is done at once. */
    if (!is_plain || cpu->any != 0 || cpu->flags & VB_CPU_TF)
        return vb_cpu_store_bytes(cpu, linear, size, value);
    cpu->kept.physical = t->physical + (linear & (VB_CPU_PAGE - 1));
    memcpy(cpu->kept.bytes, value, size);
    cpu->kept.size = size;
    return true;
}

void vb_cpu_store_kept(struct vb_cpu *cpu)
{
    struct vb_cpu_kept_store *kept = &cpu->kept;
    uint8_t *at = vb_cpu_memory_find(cpu->memory, kept->physical, kept->size);

    if (at != NULL) { /* else a device has taken the range away */
        memcpy(at, kept->bytes, kept->size);
        vb_cpu_memory_wrote(cpu->memory, kept->physical, kept->size);
    }
    kept->size = 0;
}

/* 0 to `longest` - 1, by a generator of Marsaglia (Xorshift RNGs, 2003). */
static uint32_t cycles_beyond(struct vb_cpu_turns *turns)
{
    turns->random ^= turns->random << 13;
    turns->random ^= turns->random >> 7;
    turns->random ^= turns->random << 17;
    return (uint32_t)((turns->random >> 32) * turns->longest >> 32);
}

/* The place of the core that is furthest behind; `next`: the cycle of the one behind it. */
static uint32_t furthest_behind(struct vb_cpu *const *cpu, uint32_t cpus, uint64_t *next)
{
    uint32_t least = 0;

    *next = UINT64_MAX;
    for (uint32_t i = 1; i < cpus; ++i) {
        if (cpu[i]->cycles < cpu[least]->cycles) {
            *next = cpu[least]->cycles;
            least = i;
        } else if (cpu[i]->cycles < *next) {
            *next = cpu[i]->cycles;
        }
    }
    return least;
}

static void end_turns(struct vb_cpu *const *cpu, uint32_t cpus)
{
    for (uint32_t i = 0; i < cpus; ++i) {
        if (cpu[i]->kept.size != 0)
            vb_cpu_store_kept(cpu[i]);
        cpu[i]->turn_end = UINT64_MAX;
    }
}

enum vb_cpu_stop vb_cpu_run_turns(struct vb_cpu_turns *turns, struct vb_cpu *const *cpu,
                                  uint32_t cpus, uint64_t most, uint64_t until, uint32_t *last)
{
    enum vb_cpu_stop stop = VB_CPU_STOP_LIMIT;
    struct vb_cpu *one;
    uint64_t next, before;

    do {
        *last = furthest_behind(cpu, cpus, &next);
        one = cpu[*last];
        if (one->cycles >= until)
            break;
        next = next < until ? next + cycles_beyond(turns) : until;
        if (next == one->cycles)
            ++next; /* one instruction at least */
        next = next < until ? next : until;
        /* Half of the turns end between the steps of an instruction, if it has two. */
        one->turn_end = turns->random & 1 ? next : UINT64_MAX;
        before = one->instructions;
        stop = vb_cpu_run(one, most, next);
        most -= one->instructions - before;
    } while (stop == VB_CPU_STOP_LIMIT && !one->pause && most > 0);
    end_turns(cpu, cpus);
    return stop;
}
