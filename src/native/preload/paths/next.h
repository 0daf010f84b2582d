// SPDX-License-Identifier: Apache-2.0
/* How the interposed functions are exported, and how they reach what they stand in front of. */
#ifndef VB_PRELOAD_PATHS_NEXT_H
#define VB_PRELOAD_PATHS_NEXT_H

#include <dlfcn.h>

#define VB_EXPORT        __attribute__((visibility("default")))
#define VB_ALIAS(target) __attribute__((visibility("default"), alias(#target)))

/* The function of that name behind us, as a pointer of type `type`; looked up once. */
#define VB_NEXT_AS(type, name)                                                                     \
    ({                                                                                             \
        static type *next_;                                                                        \
        type *found_ = __atomic_load_n(&next_, __ATOMIC_RELAXED);                                  \
        if (!found_) {                                                                             \
            found_ = (type *)dlsym(RTLD_NEXT, #name);                                              \
            __atomic_store_n(&next_, found_, __ATOMIC_RELAXED);                                    \
        }                                                                                          \
        found_;                                                                                    \
    })
#define VB_NEXT(name) VB_NEXT_AS(__typeof__(name), name)

#endif
