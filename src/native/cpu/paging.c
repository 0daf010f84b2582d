// SPDX-License-Identifier: Apache-2.0
/* Page walks, the cache of translations, and accesses that cross a page or leave RAM. */
#include "cpu/paging.h"

#define PRESENT    (UINT64_C(1) << 0)
#define WRITABLE   (UINT64_C(1) << 1)
#define USER       (UINT64_C(1) << 2)
#define ACCESSED   (UINT64_C(1) << 5)
#define DIRTY      (UINT64_C(1) << 6)
#define LARGE      (UINT64_C(1) << 7)
#define NO_EXECUTE (UINT64_C(1) << 63)
#define ADDRESS    UINT64_C(0x000ffffffffff000)

enum { ERROR_PRESENT = 1, ERROR_WRITE = 2, ERROR_USER = 4, ERROR_FETCH = 16 };

static bool unanswered(struct vb_cpu *cpu, uint64_t address, uint32_t size, bool write)
{
    cpu->fault = (struct vb_cpu_fault){
        .bus = true, .write = write, .size = (uint8_t)size, .address = address};
    return false;
}

void vb_cpu_follow_memory(struct vb_cpu *cpu)
{
    if (cpu->code_marks != cpu->memory->code_marks) {
        cpu->code_marks = cpu->memory->code_marks;
        memset(cpu->translation, 0, sizeof cpu->translation);
    }
    if (cpu->code_version != cpu->memory->code_version) {
        cpu->code_version = cpu->memory->code_version;
        ++cpu->mapping;
    }
}

/*
 * After a call of the bus, which may have taken RAM away: an instruction that goes on, as REP MOVS
 * or one whose access crosses a page, must not use the bytes of that.
 */
static bool answered(struct vb_cpu *cpu, bool is_answered, uint64_t address, uint32_t size,
                     bool write)
{
    if (cpu->code_marks != cpu->memory->code_marks)
        vb_cpu_follow_memory(cpu);
    return is_answered || unanswered(cpu, address, size, write);
}

bool vb_cpu_memory_read(struct vb_cpu *cpu, uint64_t address, uint32_t size, void *value)
{
    const struct vb_cpu_memory *memory = cpu->memory;
    const uint8_t *bytes = vb_cpu_memory_find(memory, address, size);

    if (bytes != NULL) {
        memcpy(value, bytes, size);
        return true;
    }
    return answered(cpu, memory->bus.read(memory->bus.context, cpu, address, size, value), address,
                    size, false);
}

bool vb_cpu_memory_write(struct vb_cpu *cpu, uint64_t address, uint32_t size, const void *value)
{
    struct vb_cpu_memory *memory = cpu->memory;
    uint8_t *bytes = vb_cpu_memory_find(memory, address, size);

    if (bytes != NULL) {
        memcpy(bytes, value, size);
        vb_cpu_memory_wrote(memory, address, size);
        return true;
    }
    return answered(cpu, memory->bus.write(memory->bus.context, cpu, address, size, value), address,
                    size, true);
}

struct walk {
    uint64_t physical; /* of the page of 4 KiB */
    uint64_t entry_at; /* the physical address of the entry that maps it */
    uint64_t entry;
    uint8_t allows;
};

static uint8_t rights(const struct vb_cpu *cpu, bool user, bool writable, bool executable)
{
    uint8_t kernel = VB_CPU_MAY_READ | (executable ? VB_CPU_MAY_EXECUTE : 0);
    uint8_t process = kernel | (writable ? VB_CPU_MAY_WRITE : 0);

    if (writable || !(cpu->cr0 & VB_CPU_CR0_WRITE_PROTECT))
        kernel |= VB_CPU_MAY_WRITE;
    return user ? (uint8_t)(kernel | process << VB_CPU_MAY_USER_SHIFT) : kernel;
}

static bool is_canonical(uint64_t linear)
{
    return (uint64_t)((int64_t)(linear << 16) >> 16) == linear;
}

/*
 * Follows the tables, and marks their entries as accessed if `marks`. Returns false where they end;
 * `found` is set if they do not.
 */
static bool walk_tables(struct vb_cpu *cpu, uint64_t linear, bool marks, struct walk *found)
{
    uint64_t table = cpu->cr3 & ADDRESS;
    bool user = true, writable = true, executable = true;

    for (uint32_t shift = 39;; shift -= 9) {
        uint64_t at = table + (linear >> shift & 511) * 8, entry;

        if (!vb_cpu_memory_read(cpu, at, 8, &entry) || !(entry & PRESENT))
            return false;
        user = user && entry & USER;
        writable = writable && entry & WRITABLE;
        executable = executable && !(entry & NO_EXECUTE && cpu->efer & VB_CPU_EFER_NO_EXECUTE);
        if (shift == 12 || (entry & LARGE && shift < 39)) {
            uint64_t inside = (UINT64_C(1) << shift) - 1;

            found->physical =
                ((entry & ADDRESS & ~inside) | (linear & inside)) & ~(uint64_t)(VB_CPU_PAGE - 1);
            found->entry_at = at;
            found->entry = entry;
            found->allows = rights(cpu, user, writable, executable);
            return true;
        }
        if (marks && !(entry & ACCESSED)) {
            entry |= ACCESSED;
            (void)vb_cpu_memory_write(cpu, at, 8, &entry);
        }
        table = entry & ADDRESS;
    }
}

static bool page_fault(struct vb_cpu *cpu, uint64_t linear, uint32_t size, uint8_t right,
                       bool present)
{
    uint32_t error = (present ? ERROR_PRESENT : 0) | (cpu->ring == 3 ? ERROR_USER : 0);

    if (right == VB_CPU_MAY_WRITE)
        error |= ERROR_WRITE;
    if (right == VB_CPU_MAY_EXECUTE && cpu->efer & VB_CPU_EFER_NO_EXECUTE)
        error |= ERROR_FETCH;
    cpu->fault = (struct vb_cpu_fault){.vector = VB_CPU_PAGE_FAULT,
                                       .has_error = true,
                                       .error = error,
                                       .write = right == VB_CPU_MAY_WRITE,
                                       .size = (uint8_t)size,
                                       .address = linear};
    return false;
}

static void set_bits(struct vb_cpu *cpu, const struct walk *found, bool write)
{
    uint64_t entry = found->entry | ACCESSED | (write ? DIRTY : 0);

    if (entry != found->entry)
        (void)vb_cpu_memory_write(cpu, found->entry_at, 8, &entry);
}

/* The translation of the page, which allows the access; or NULL, with the fault. */
static struct vb_cpu_translation *translate(struct vb_cpu *cpu, uint64_t linear, uint32_t size,
                                            uint8_t right)
{
    uint64_t page = linear >> VB_CPU_PAGE_SHIFT;
    struct vb_cpu_translation *t = &cpu->translation[page & (VB_CPU_TRANSLATIONS - 1)];
    bool write = right == VB_CPU_MAY_WRITE;
    struct walk found = {.physical = page << VB_CPU_PAGE_SHIFT, .allows = 0xff};

    if (t->page == page + 1 && t->allows & vb_cpu_right(cpu, right) && (t->written || !write))
        return t;
    if (cpu->cr0 & VB_CPU_CR0_PAGING) {
        bool present;

        if (!is_canonical(linear)) {
            /* SDM volume 1, 3.3.7.1 */
            cpu->fault = (struct vb_cpu_fault){
                .vector = VB_CPU_PROTECTION, .has_error = true, .address = linear};
            return NULL;
        }
        present = walk_tables(cpu, linear, true, &found);
        if (!present || !(found.allows & vb_cpu_right(cpu, right))) {
            page_fault(cpu, linear, size, right, present);
            return NULL;
        }
        set_bits(cpu, &found, write);
    }
    *t = (struct vb_cpu_translation){.page = page + 1,
                                     .physical = found.physical,
                                     .allows = found.allows,
                                     .written = write || !(cpu->cr0 & VB_CPU_CR0_PAGING)};
    t->bytes = vb_cpu_memory_find(cpu->memory, found.physical, VB_CPU_PAGE);
    t->stores = t->written && !vb_cpu_memory_has_code(cpu->memory, found.physical);
    return t;
}

static uint32_t within_page(uint64_t linear, uint32_t size)
{
    uint32_t left = VB_CPU_PAGE - ((uint32_t)linear & (VB_CPU_PAGE - 1));

    return size < left ? size : left;
}

static uint64_t physical_of(const struct vb_cpu_translation *t, uint64_t linear)
{
    return t->physical | (linear & (VB_CPU_PAGE - 1));
}

/*
 * Finds the one or two physical addresses of an access. Without paging an access that crosses a
 * page is whole, as the bus sees it.
 */
static bool locate(struct vb_cpu *cpu, uint64_t linear, uint32_t size, uint8_t right,
                   uint64_t physical[2], uint32_t *first)
{
    struct vb_cpu_translation *t = translate(cpu, linear, size, right);

    if (t == NULL)
        return false;
    physical[0] = physical_of(t, linear);
    *first = cpu->cr0 & VB_CPU_CR0_PAGING ? within_page(linear, size) : size;
    if (*first == size)
        return true;
    t = translate(cpu, linear + *first, size - *first, right);
    if (t == NULL)
        return false;
    physical[1] = physical_of(t, linear + *first);
    if (physical[1] == physical[0] + *first)
        *first = size;
    return true;
}

bool vb_cpu_load_slowly(struct vb_cpu *cpu, uint64_t linear, uint32_t size, void *value)
{
    uint64_t physical[2] = {0, 0};
    uint32_t first;

    if (!locate(cpu, linear, size, VB_CPU_MAY_READ, physical, &first) ||
        !vb_cpu_memory_read(cpu, physical[0], first, value))
        return false;
    return first == size ||
           vb_cpu_memory_read(cpu, physical[1], size - first, (uint8_t *)value + first);
}

bool vb_cpu_store_slowly(struct vb_cpu *cpu, uint64_t linear, uint32_t size, const void *value)
{
    uint64_t physical[2] = {0, 0};
    uint32_t first;

    if (!locate(cpu, linear, size, VB_CPU_MAY_WRITE, physical, &first) ||
        !vb_cpu_memory_write(cpu, physical[0], first, value))
        return false;
    return first == size ||
           vb_cpu_memory_write(cpu, physical[1], size - first, (const uint8_t *)value + first);
}

bool vb_cpu_fetch_page(struct vb_cpu *cpu, uint64_t linear, uint64_t *physical)
{
    const struct vb_cpu_translation *t = translate(cpu, linear, 1, VB_CPU_MAY_EXECUTE);

    if (t == NULL)
        return false;
    *physical = physical_of(t, linear);
    return true;
}

bool vb_cpu_physical(struct vb_cpu *cpu, uint64_t linear, uint64_t *physical)
{
    struct vb_cpu_fault before = cpu->fault;
    struct walk found;

    if (!(cpu->cr0 & VB_CPU_CR0_PAGING)) {
        *physical = linear;
        return true;
    }
    if (!is_canonical(linear) || !walk_tables(cpu, linear, false, &found)) {
        cpu->fault = before;
        return false;
    }
    *physical = found.physical | (linear & (VB_CPU_PAGE - 1));
    return true;
}

/* Decoded instructions are found by linear address: their tags have the number of the mapping. */
void vb_cpu_forget_translations(struct vb_cpu *cpu)
{
    memset(cpu->translation, 0, sizeof cpu->translation);
    ++cpu->mapping;
}

void vb_cpu_forget_page(struct vb_cpu *cpu, uint64_t linear)
{
    uint64_t page = linear >> VB_CPU_PAGE_SHIFT;
    struct vb_cpu_translation *t = &cpu->translation[page & (VB_CPU_TRANSLATIONS - 1)];

    if (t->page == page + 1)
        t->page = 0;
    ++cpu->mapping;
}
