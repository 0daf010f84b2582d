// SPDX-License-Identifier: Apache-2.0
/*
 * Accesses by linear address: with paging, through tables of four levels (SDM 4.5) with pages of
 * 4 KiB, 2 MiB and 1 GiB, accessed and dirty bits, and NX; without, the address is the physical
 * one. A fault is left in cpu->fault, and the call returns false.
 */
#pragma once

#include "cpu/cpu.h"

#include <string.h>

enum {
    VB_CPU_MAY_READ = 1,
    VB_CPU_MAY_WRITE = 2,
    VB_CPU_MAY_EXECUTE = 4,
    VB_CPU_MAY_USER_SHIFT = 3 /* the same for ring 3 */
};

/* By physical address. */
bool vb_cpu_memory_read(struct vb_cpu *cpu, uint64_t address, uint32_t size, void *value);
bool vb_cpu_memory_write(struct vb_cpu *cpu, uint64_t address, uint32_t size, const void *value);

__attribute__((noinline)) bool vb_cpu_load_slowly(struct vb_cpu *cpu, uint64_t linear,
                                                  uint32_t size, void *value);
__attribute__((noinline)) bool vb_cpu_store_slowly(struct vb_cpu *cpu, uint64_t linear,
                                                   uint32_t size, const void *value);

/*
 * The store of an instruction that has loaded the same place and has no LOCK, at the end of a turn
 * of its core: it is kept until after the turns of others (turns.h). The second call does it.
 */
__attribute__((noinline)) bool vb_cpu_keep_store(struct vb_cpu *cpu, uint64_t linear, uint32_t size,
                                                 const void *value);
void vb_cpu_store_kept(struct vb_cpu *cpu);

/*
 * The physical address of an instruction, and how many bytes of its page follow. The next page is
 * asked for only if the instruction goes on there.
 */
bool vb_cpu_fetch_page(struct vb_cpu *cpu, uint64_t linear, uint64_t *physical);

/* What was decoded or translated is void if the memory says so. */
void vb_cpu_follow_memory(struct vb_cpu *cpu);

void vb_cpu_forget_translations(struct vb_cpu *cpu);
void vb_cpu_forget_page(struct vb_cpu *cpu, uint64_t linear);

static inline uint8_t vb_cpu_right(const struct vb_cpu *cpu, uint8_t right)
{
    return cpu->ring == 0 ? right : (uint8_t)(right << VB_CPU_MAY_USER_SHIFT);
}

static inline uint8_t *vb_cpu_fast_bytes(struct vb_cpu *cpu, uint64_t linear, uint32_t size,
                                         uint8_t right)
{
    uint64_t page = linear >> VB_CPU_PAGE_SHIFT;
    uint32_t offset = (uint32_t)linear & (VB_CPU_PAGE - 1);
    const struct vb_cpu_translation *t = &cpu->translation[page & (VB_CPU_TRANSLATIONS - 1)];

    if (t->page != page + 1 || t->bytes == NULL || !(t->allows & vb_cpu_right(cpu, right)) ||
        offset + size > VB_CPU_PAGE)
        return NULL;
    return t->bytes + offset;
}

/* `value` has `size` bytes. */
static inline bool vb_cpu_load_bytes(struct vb_cpu *cpu, uint64_t linear, uint32_t size,
                                     void *value)
{
    const uint8_t *bytes = vb_cpu_fast_bytes(cpu, linear, size, VB_CPU_MAY_READ);

    if (bytes == NULL)
        return vb_cpu_load_slowly(cpu, linear, size, value);
    memcpy(value, bytes, size);
    return true;
}

static inline bool vb_cpu_store_bytes(struct vb_cpu *cpu, uint64_t linear, uint32_t size,
                                      const void *value)
{
    uint64_t page = linear >> VB_CPU_PAGE_SHIFT;
    uint8_t *bytes = vb_cpu_fast_bytes(cpu, linear, size, VB_CPU_MAY_WRITE);

    if (bytes == NULL || !cpu->translation[page & (VB_CPU_TRANSLATIONS - 1)].stores)
        return vb_cpu_store_slowly(cpu, linear, size, value);
    memcpy(bytes, value, size);
    return true;
}

/* An integer of 1, 2, 4 or 8 bytes. */
static inline bool vb_cpu_load(struct vb_cpu *cpu, uint64_t linear, uint32_t size, uint64_t *value)
{
    *value = 0;
    switch (size) {
    case 1:
        return vb_cpu_load_bytes(cpu, linear, 1, value);
    case 2:
        return vb_cpu_load_bytes(cpu, linear, 2, value);
    case 4:
        return vb_cpu_load_bytes(cpu, linear, 4, value);
    default:
        return vb_cpu_load_bytes(cpu, linear, 8, value);
    }
}

static inline bool vb_cpu_store(struct vb_cpu *cpu, uint64_t linear, uint32_t size, uint64_t value)
{
    switch (size) {
    case 1:
        return vb_cpu_store_bytes(cpu, linear, 1, &value);
    case 2:
        return vb_cpu_store_bytes(cpu, linear, 2, &value);
    case 4:
        return vb_cpu_store_bytes(cpu, linear, 4, &value);
    default:
        return vb_cpu_store_bytes(cpu, linear, 8, &value);
    }
}
