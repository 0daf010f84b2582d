// SPDX-License-Identifier: Apache-2.0
/*
 * The physical address space that the cores of a computer share: ranges of RAM of any base and
 * size, and one call for everything else. Cores read and write through it; devices that write to
 * RAM by DMA call vb_cpu_memory_wrote, so that instructions that were decoded from there are read
 * anew.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { VB_CPU_PAGE_SHIFT = 12, VB_CPU_PAGE = 1 << VB_CPU_PAGE_SHIFT, VB_CPU_RAM_RANGES = 16 };

struct vb_cpu;

/*
 * An access that is not all in one range of RAM; `value` has `size` bytes, 1 to 16, of which a read
 * fills in the bytes. It returns false where nothing answers.
 */
struct vb_cpu_bus {
    void *context;
    bool (*read)(void *context, struct vb_cpu *cpu, uint64_t address, uint32_t size, void *value);
    bool (*write)(void *context, struct vb_cpu *cpu, uint64_t address, uint32_t size,
                  const void *value);
    /* the same for ports, with IN and OUT */
    bool (*port_read)(void *context, struct vb_cpu *cpu, uint16_t port, uint32_t size, void *value);
    bool (*port_write)(void *context, struct vb_cpu *cpu, uint16_t port, uint32_t size,
                       const void *value);
};

struct vb_cpu_ram {
    uint64_t base, size;
    uint8_t *bytes;
    uint8_t *code; /* for each page of the address space that it touches: has it decoded code? */
};

struct vb_cpu_memory {
    struct vb_cpu_bus bus;
    struct vb_cpu_ram ram[VB_CPU_RAM_RANGES];
    uint32_t rams;
    uint32_t code_version; /* changes when decoded code was overwritten, or RAM came or went */
    uint32_t code_marks;   /* changes when a page gets decoded code, and with code_version */
};

/* Adds a range, whose `bytes` stay the caller's. -1: there are VB_CPU_RAM_RANGES, or no memory. */
int vb_cpu_memory_add(struct vb_cpu_memory *memory, uint64_t base, uint64_t size, uint8_t *bytes);
void vb_cpu_memory_remove(struct vb_cpu_memory *memory, uint64_t base);
void vb_cpu_memory_close(struct vb_cpu_memory *memory);

/* The bytes of a physical range, if it lies in one range of RAM; else NULL. */
uint8_t *vb_cpu_memory_find(const struct vb_cpu_memory *memory, uint64_t address, uint64_t size);

/* Has the page decoded code? The second call says so from now on. */
bool vb_cpu_memory_has_code(const struct vb_cpu_memory *memory, uint64_t address);
void vb_cpu_memory_mark_code(struct vb_cpu_memory *memory, uint64_t address);

/* Somebody has written there. */
void vb_cpu_memory_wrote(struct vb_cpu_memory *memory, uint64_t address, uint64_t size);
