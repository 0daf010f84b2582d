// SPDX-License-Identifier: Apache-2.0
/*
 * How interposed functions are exported, and how they call the function that they stand in front
 * of.
 */
#ifndef VB_PRELOAD_PATHS_NEXT_H
#define VB_PRELOAD_PATHS_NEXT_H

#include <dlfcn.h>

#define VB_EXPORT __attribute__((visibility("default")))

#if __has_attribute(copy)
#define VB_ATTRIBUTES_OF(target) copy(target),
#else
#define VB_ATTRIBUTES_OF(target)
#endif

/*
 * A second name of a function that is defined in the same file. The alias has the type of that
 * function, since clang 23 warns of any other: 64-bit Linux has one layout for `struct stat` and
 * `struct stat64` and their like, but they are different types. It has the attributes that the
 * system's header gives the function, since gcc warns of an alias that has fewer.
 */
#define VB_ALIAS_AS(type, name, target, ...)                                                       \
    VB_EXPORT extern type vb_alias_##name __asm__(#name) __attribute__((__VA_ARGS__ alias(#target)))
#define VB_ALIAS(name, target)                                                                     \
    VB_ALIAS_AS(__typeof__(target), name, target, VB_ATTRIBUTES_OF(target))

/* The next function of that name after this library, as a pointer of type `type`; looked up once.
 */
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
