// SPDX-License-Identifier: Apache-2.0
/*
 * scandir(3) and glob(3). Inside the C library these do not call opendir and readdir by their
 * symbols, so the interposed ones would not be seen.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>

#include "preload/paths/claim.h"
#include "preload/paths/directory.h"
#include "preload/paths/next.h"

/* ---- scandir ------------------------------------------------------------------------------- */

typedef int select_entry(const struct dirent *entry);
typedef int compare_entries(const struct dirent **left, const struct dirent **right);
typedef int compare_any(const void *left, const void *right);

struct listing {
    struct dirent **entries;
    size_t count;
};

static void lists_discard(struct listing *listing)
{
    while (listing->count)
        free(listing->entries[--listing->count]);
    free(listing->entries);
}

static bool lists_keep(struct listing *listing, const struct dirent *entry)
{
    struct dirent **entries =
        reallocarray(listing->entries, listing->count + 1, sizeof *listing->entries);
    if (!entries)
        return false;
    listing->entries = entries;
    entries[listing->count] = malloc(sizeof *entry);
    if (!entries[listing->count])
        return false;
    memcpy(entries[listing->count++], entry, sizeof *entry);
    return true;
}

static bool collect(DIR *stream, select_entry *select, struct listing *listing)
{
    const struct dirent *entry;
    while ((entry = readdir(stream)))
        if ((!select || select(entry)) && !lists_keep(listing, entry))
            return false;
    return true;
}

static int list_directory(DIR *stream, struct dirent ***list, select_entry *select,
                          compare_entries *compare)
{
    struct listing listing = {0};
    bool complete = collect(stream, select, &listing);
    closedir(stream);
    if (!complete) {
        lists_discard(&listing);
        errno = ENOMEM;
        return -1;
    }
    if (compare && listing.count)
        qsort(listing.entries, listing.count, sizeof *listing.entries, (compare_any *)compare);
    *list = listing.entries;
    return (int)listing.count;
}

static int scan(const struct vb_place *place, struct dirent ***list, select_entry *select,
                compare_entries *compare)
{
    DIR *stream = vb_preload_directory_open(place);
    return stream ? list_directory(stream, list, select, compare) : -1;
}

VB_EXPORT int scandir(const char *restrict path, struct dirent ***restrict list,
                      select_entry *select, compare_entries *compare)
{
    struct vb_place place;
    if (vb_preload_claim_path(path, &place))
        return scan(&place, list, select, compare);
    return VB_NEXT(scandir)(place.outside, list, select, compare);
}

VB_EXPORT int scandirat(int dirfd, const char *restrict path, struct dirent ***restrict list,
                        select_entry *select, compare_entries *compare)
{
    struct vb_place place;
    if (vb_preload_claim(dirfd, path, true, &place))
        return scan(&place, list, select, compare);
    return VB_NEXT(scandirat)(dirfd, place.outside, list, select, compare);
}

VB_ALIAS(scandir64, scandir);
VB_ALIAS(scandirat64, scandirat);

/* ---- glob: GLOB_ALTDIRFUNC gives it the functions that list directories ---------------------- */

static void *glob_opendir(const char *path)
{
    return opendir(path);
}

static struct dirent *glob_readdir(void *stream)
{
    return readdir(stream);
}

static void glob_closedir(void *stream)
{
    closedir(stream);
}

static void use_our_directories(glob_t *result)
{
    result->gl_opendir = glob_opendir;
    result->gl_readdir = glob_readdir;
    result->gl_closedir = glob_closedir;
    result->gl_stat = stat;
    result->gl_lstat = lstat;
}

typedef int glob_error(const char *path, int error);

VB_EXPORT int glob(const char *restrict pattern, int flags, glob_error *on_error,
                   glob_t *restrict result)
{
    if (pattern && result && !(flags & GLOB_ALTDIRFUNC) &&
        (vb_preload_may_be_ours(pattern) || vb_preload_working_node() >= 0)) {
        use_our_directories(result);
        flags |= GLOB_ALTDIRFUNC;
    }
    return VB_NEXT(glob)(pattern, flags, on_error, result);
}

VB_ALIAS(glob64, glob);
