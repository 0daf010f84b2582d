// SPDX-License-Identifier: Apache-2.0
/* Adapters of programs on simulated hosts: each has its own name for locks, in shared memory too.
 */
#include "check.h"
#include "memory/process_heap.h"
#include "sim/hca.h"
#include "star.h"

enum { HOSTS = 24 };

static void every_host_has_its_own_lock_identity(void)
{
    struct vb_sim_hca *connect[HOSTS];
    struct star star;

    star_open(&star, HOSTS, 100000000000, 1000000);
    for (uint32_t i = 0; i < HOSTS; ++i) {
        CHECK_EQ(vb_sim_hca_open(star_attachment(&star, i), vb_memory_process_heap(), &connect[i]),
                 0);
        CHECK(connect[i]->adapter.instance > VB_ARM_ANY);
        for (uint32_t j = 0; j < i; ++j)
            CHECK(connect[i]->adapter.instance != connect[j]->adapter.instance);
    }
    for (uint32_t i = 0; i < HOSTS; ++i)
        vb_sim_hca_close(connect[i]);
    star_close(&star);
}

int main(void)
{
    RUN(every_host_has_its_own_lock_identity);
    return 0;
}
