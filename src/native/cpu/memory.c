// SPDX-License-Identifier: Apache-2.0
/* Ranges of RAM, the pages of them that have decoded code, and accesses by physical address. */
#include "cpu/memory.h"

#include <stdlib.h>
#include <string.h>

static void changed(struct vb_cpu_memory *memory)
{
    ++memory->code_version;
    ++memory->code_marks;
}

static uint64_t first_page(const struct vb_cpu_ram *ram)
{
    return ram->base >> VB_CPU_PAGE_SHIFT;
}

int vb_cpu_memory_add(struct vb_cpu_memory *memory, uint64_t base, uint64_t size, uint8_t *bytes)
{
    struct vb_cpu_ram *ram = &memory->ram[memory->rams];
    uint64_t pages;

    if (memory->rams == VB_CPU_RAM_RANGES || size == 0 || base + size - 1 < base)
        return -1;
    pages = ((base + size - 1) >> VB_CPU_PAGE_SHIFT) - (base >> VB_CPU_PAGE_SHIFT) + 1;
    *ram = (struct vb_cpu_ram){.base = base, .size = size, .bytes = bytes};
    ram->code = calloc(pages, 1);
    if (ram->code == NULL)
        return -1;
    ++memory->rams;
    changed(memory);
    return 0;
}

void vb_cpu_memory_remove(struct vb_cpu_memory *memory, uint64_t base)
{
    for (uint32_t i = 0; i < memory->rams; ++i) {
        if (memory->ram[i].base != base)
            continue;
        free(memory->ram[i].code);
        memory->ram[i] = memory->ram[--memory->rams];
        changed(memory);
        return;
    }
}

void vb_cpu_memory_close(struct vb_cpu_memory *memory)
{
    while (memory->rams > 0)
        free(memory->ram[--memory->rams].code);
}

static const struct vb_cpu_ram *range_of(const struct vb_cpu_memory *memory, uint64_t address,
                                         uint64_t size)
{
    for (uint32_t i = 0; i < memory->rams; ++i) {
        const struct vb_cpu_ram *ram = &memory->ram[i];

        if (address >= ram->base && size <= ram->size && address - ram->base <= ram->size - size)
            return ram;
    }
    return NULL;
}

uint8_t *vb_cpu_memory_find(const struct vb_cpu_memory *memory, uint64_t address, uint64_t size)
{
    const struct vb_cpu_ram *ram = range_of(memory, address, size);

    return ram == NULL ? NULL : ram->bytes + (address - ram->base);
}

bool vb_cpu_memory_has_code(const struct vb_cpu_memory *memory, uint64_t address)
{
    const struct vb_cpu_ram *ram = range_of(memory, address, 1);

    return ram != NULL && ram->code[(address >> VB_CPU_PAGE_SHIFT) - first_page(ram)];
}

void vb_cpu_memory_mark_code(struct vb_cpu_memory *memory, uint64_t address)
{
    const struct vb_cpu_ram *ram = range_of(memory, address, 1);

    if (ram == NULL || ram->code[(address >> VB_CPU_PAGE_SHIFT) - first_page(ram)])
        return;
    ram->code[(address >> VB_CPU_PAGE_SHIFT) - first_page(ram)] = true;
    ++memory->code_marks;
}

void vb_cpu_memory_wrote(struct vb_cpu_memory *memory, uint64_t address, uint64_t size)
{
    const struct vb_cpu_ram *ram = size == 0 ? NULL : range_of(memory, address, size);

    if (ram == NULL)
        return;
    for (uint64_t page = address >> VB_CPU_PAGE_SHIFT;
         page <= (address + size - 1) >> VB_CPU_PAGE_SHIFT; ++page) {
        uint8_t *code = &ram->code[page - first_page(ram)];

        if (*code) {
            *code = false;
            changed(memory);
        }
    }
}
