// SPDX-License-Identifier: Apache-2.0
#include "dropin/failures.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "direct/refused.h"
#include "dropin/context.h"
#include "dropin/device.h"
#include "dropin/export.h"
#include "dropin/hint.h"
#include "dropin/settings.h"
#include "dropin/simulated.h"
#include "dropin/verbena.h"
#include "hca/decline.h"
#include "hca/names.h"
#include "hca/sentences.h"

enum { LINES_A_SECOND = 20, TEXT = 1024 };

static uint64_t seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

/* A line's words without its numbers, as a number (FNV-1a) that is not 0. */
static uint32_t hash_words(const char *text)
{
    uint32_t hash = 2166136261u;

    while (*text) {
        if (*text >= '0' && *text <= '9') /* "0x1f" as well as "31" */
            text += strspn(text, "0123456789abcdefx");
        else
            hash = (hash ^ (uint8_t)*text++) * 16777619u;
    }
    return hash | 1;
}

/* Has the latest failure the same words, and is it younger than a second or two? Under the mutex.
 */
static bool is_alike(const struct vb_lines *lines, uint32_t words, uint64_t now)
{
    return words && lines->words == words && now <= lines->words_at + 1;
}

/* May one more line be written? `words`: hash_words, or 0 for a line that is like no other. */
static bool may_write(struct vb_lines *lines, uint32_t words, struct vb_left_out *left_out)
{
    uint64_t now = seconds_now();
    bool may = false;

    vb_lock_take(&lines->mutex);
    if (lines->second != now) {
        lines->second = now;
        lines->shown = 0;
    }
    if (is_alike(lines, words, now)) {
        ++lines->left_out.alike;
        lines->words_at = now;
    } else if (lines->shown == LINES_A_SECOND) {
        ++lines->left_out.many;
    } else {
        may = true;
        ++lines->shown;
        lines->words = words;
        lines->words_at = now;
        *left_out = lines->left_out;
        lines->left_out = (struct vb_left_out){0};
    }
    vb_lock_release(&lines->mutex);
    return may;
}

static void say_left_out(const struct vb_left_out *left_out)
{
    if (left_out->alike)
        vb_dropin_log(VB_LOG_ERRORS,
                      "%" PRIu64
                      " more failures were not shown: like the last one, but for numbers",
                      left_out->alike);
    if (left_out->many)
        vb_dropin_log(VB_LOG_ERRORS, "%" PRIu64 " more failures were not shown", left_out->many);
}

/* Where the code that failed left no reason. */
static const char *usual_reason(int error)
{
    switch (error) {
    case -ENOMEM:
        return "; memory, address space (`ulimit -v`) or the device's table of such objects is "
               "used "
               "up";
    case -EOPNOTSUPP:
        return "; this device does not offer it";
    case -EMFILE:
        return "; this process has too many open files: raise `ulimit -n`";
    default:
        return "";
    }
}

static void say_call(struct vb_open *opened, const char *call, int error)
{
    struct vb_left_out left_out;
    char text[TEXT] = "", line[TEXT + 128];

    if (vb_decline_text(opened->core, error, text, sizeof(text)))
        snprintf(line, sizeof(line), "%s failed: %s; %s", call, strerror(-error), text);
    else
        snprintf(line, sizeof(line), "%s failed: %s%s", call, strerror(-error),
                 usual_reason(error));
    if (!may_write(&opened->lines, hash_words(line), &left_out))
        return;
    say_left_out(&left_out);
    vb_dropin_log(VB_LOG_ERRORS, "%s", line);
}

/* For calls with which programs look what is there. */
static void say_once(struct vb_open *opened, const char *call, int error)
{
    char text[TEXT] = "";
    struct vb_left_out left_out;

    if (!vb_dropin_settings()->explain ||
        !vb_decline_text(opened->core, error, text, sizeof(text)) ||
        !may_write(&opened->lines, 0, &left_out))
        return;
    say_left_out(&left_out);
    vb_dropin_log(VB_LOG_ERRORS, "note: %s: %s", call, text);
}

static int failures_failed(struct vb_open *opened, const char *call, int error, bool told)
{
    struct vb_left_out left_out;

    if (opened->core) {
        vb_decline_close(opened->core, error);
        if (vb_dropin_settings()->explain && !told)
            say_call(opened, call, error);
    } else if (vb_dropin_settings()->explain &&
               may_write(&opened->lines, hash_words(call), &left_out)) {
        say_left_out(&left_out);
        vb_dropin_log(VB_LOG_ERRORS, "%s failed: the device was %s; open it again%s", call,
                      opened->ended ? "closed" : "opened before this process was forked",
                      opened->ended ? "" : " here");
    }
    errno = -error;
    return -error;
}

int vb_dropin_failed(struct ibv_context *context, const char *call, int error)
{
    vb_dropin_hint_needed();
    return failures_failed(vb_dropin_open_of(context), call, error, false);
}

int vb_dropin_failed_once(struct ibv_context *context, const char *call, int error)
{
    struct vb_open *opened = vb_dropin_open_of(context);
    bool told;

    vb_lock_take(&opened->lines.mutex);
    told = opened->lines.told_once;
    opened->lines.told_once = true;
    vb_lock_release(&opened->lines.mutex);
    failures_failed(opened, call, error, true);
    if (!told && opened->core)
        say_once(opened, call, error);
    errno = -error;
    return -error;
}

void vb_dropin_not_offered(const char *call)
{
    if (vb_dropin_settings()->explain)
        vb_dropin_log(VB_LOG_ERRORS, "%s failed: this device does not offer it", call);
    errno = EOPNOTSUPP;
}

/* A queue's flushed requests share one record. */
static bool is_told(struct vb_lines *lines, const struct ibv_wc *wc)
{
    bool told;

    if (wc->status != IBV_WC_WR_FLUSH_ERR)
        return false;
    vb_lock_take(&lines->mutex);
    told = lines->flush == wc->vendor_err;
    lines->flush = wc->vendor_err;
    vb_lock_release(&lines->mutex);
    return told;
}

void vb_dropin_completion_failed(struct ibv_context *context, const struct ibv_wc *wc)
{
    struct vb_open *opened = vb_dropin_open_of(context);
    char text[TEXT] = "";
    int before = errno;
    struct vb_left_out left_out;

    vb_dropin_hint_needed();
    if (!vb_dropin_settings()->explain || is_told(&opened->lines, wc) ||
        !may_write(&opened->lines, 0, &left_out))
        return;
    say_left_out(&left_out);
    vb_dropin_completion_text(context, wc->vendor_err, text, sizeof(text));
    vb_dropin_log(VB_LOG_ERRORS, "QP 0x%x, wr_id 0x%" PRIx64 ": %s%s%s", wc->qp_num, wc->wr_id,
                  vb_status_name(wc->status), *text ? ": " : "", text);
    errno = before;
}

static bool find_refusal(struct ibv_context *context, const struct vb_evidence *refused,
                         struct vb_evidence *seen)
{
    struct vb_host *host = vb_dropin_open_of(context)->host;

    return host ? vb_direct_find_refusal(host->direct, refused, seen)
                : vb_dropin_simulated_find_refusal(refused, seen);
}

int vb_dropin_completion_text(struct ibv_context *context, uint32_t vendor_err, char *text,
                              size_t size)
{
    struct vb_context *core = vb_dropin_core(context);
    struct vb_evidence evidence, seen;
    bool found;

    if (!core || !vb_evidence_get(&core->adapter->self, vendor_err, &evidence))
        return 0;
    found = evidence.check == VB_CHECK_REFUSED && find_refusal(context, &evidence, &seen);
    return vb_evidence_say(&core->adapter->self, &evidence, found ? &seen : NULL, text, size);
}

static int say_open(int error, char *text, size_t size)
{
    struct vb_space_text remedy;

    vb_dropin_open_remedy(-abs(error), &remedy);
    return snprintf(text, size, "%s", remedy.text);
}

VB_EXPORT int verbena_why(struct ibv_context *context, int error, char *text, size_t size)
{
    struct vb_context *core = context ? vb_dropin_core(context) : NULL;

    vb_dropin_hint_void();
    if (!context)
        return say_open(error, text, size);
    return core ? vb_decline_text(core, error, text, size) : 0;
}

void vb_dropin_lines_init(struct vb_lines *lines)
{
    *lines = (struct vb_lines){0};
    vb_lock_init(&lines->mutex, VB_RANK_FAILURES);
}

void vb_dropin_lines_fini(struct vb_lines *lines)
{
    say_left_out(&lines->left_out);
    vb_lock_destroy(&lines->mutex);
}
