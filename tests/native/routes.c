// SPDX-License-Identifier: Apache-2.0
#include "routes.h"

#include <sys/mman.h>

#include "check.h"

enum { BLOCKS = 1 << 20, ROOM = 1 << 28 };

static uint16_t (*blocks)[VB_WORLD_BLOCK];
static uint32_t used;
static uint8_t *next, *end;

static void *mapping(size_t size)
{
    void *made = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(made != MAP_FAILED);
    return made;
}

static void *room(size_t size)
{
    void *taken = next;

    next += (size + 7) / 8 * 8;
    CHECK(next <= end);
    return taken;
}

/* Whether the last set of the table has these `n` ports. */
static bool last_set_is(const struct vb_world_table *table, const int32_t *row, uint32_t n)
{
    const uint32_t *last = table->set + table->sets;

    if (!table->sets || last[0] - last[-1] != n)
        return false;
    for (uint32_t i = 0; i < n; ++i)
        if (table->member[last[-1] + i] != row[i])
            return false;
    return true;
}

/* Equal rows that follow one another share a set, since an entry has 15 bits for the set's number.
 */
static uint16_t entry_of(struct vb_world_table *table, uint32_t *set, uint16_t *member,
                         const int32_t *row, uint32_t width)
{
    uint32_t n = 0;

    while (n < width && row[n] >= 0)
        ++n;
    if (n < 2)
        return n ? (uint16_t)row[0] : VB_WORLD_NO_PORT;
    if (last_set_is(table, row, n))
        return (uint16_t)(VB_WORLD_PORT_SET + table->sets - 1);
    CHECK(VB_WORLD_PORT_SET + table->sets < VB_WORLD_NO_PORT);
    for (uint32_t i = 0; i < n; ++i)
        member[set[table->sets] + i] = (uint16_t)row[i];
    set[table->sets + 1] = set[table->sets] + n;
    return (uint16_t)(VB_WORLD_PORT_SET + table->sets++);
}

int vb_world_set_routes(struct vb_world *world, struct vb_world_switch *sw, const int32_t *ports,
                        uint32_t targets, uint32_t width)
{
    uint32_t count = (targets + VB_WORLD_BLOCK) / VB_WORLD_BLOCK, *number, *set;
    uint16_t *member;

    if (!blocks) {
        blocks = mapping(BLOCKS * sizeof(*blocks));
        next = mapping(ROOM);
        end = next + ROOM;
    }
    number = room(count * sizeof(*number));
    set = room((targets + 1) * sizeof(*set));
    member = room((size_t)targets * width * sizeof(*member));
    CHECK(used + count <= BLOCKS);
    sw->table = (struct vb_world_table){number, targets + 1, 0, set, member};
    memset(blocks[used], 0xff, count * sizeof(*blocks));
    for (uint32_t i = 0; i < count; ++i)
        number[i] = used + i;
    for (uint32_t i = 0; i < targets; ++i)
        blocks[used + (i + 1) / VB_WORLD_BLOCK][(i + 1) % VB_WORLD_BLOCK] =
            entry_of(&sw->table, set, member, ports + (size_t)i * width, width);
    used += count;
    world->blocks = (const uint16_t (*)[VB_WORLD_BLOCK])blocks;
    return 0;
}
