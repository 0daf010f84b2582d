// SPDX-License-Identifier: Apache-2.0
/*
 * How failed calls and completions are logged, and how programs ask for the reasons (failures.h).
 * The core keeps the reasons (hca/decline.h, hca/evidence.h); this writes them as lines, and
 * limits how many.
 */
#include "dropin/failures.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "direct/refused.h"
#include "dropin/advice.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/remedy.h"
#include "dropin/settings.h"
#include "dropin/verbena.h"
#include "hca/decline.h"
#include "hca/names.h"
#include "hca/sentences.h"
#include "sim/hca.h"

enum { LINES_A_SECOND = 20, TEXT = 1024 };

static uint64_t seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

/* Returns a hash (FNV-1a) of a line without its numbers, which is never 0. */
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

/* Under the mutex. Did the last failure have the same words, and was it less than two seconds ago?
 */
static bool is_alike(const struct vb_lines *lines, uint32_t words, uint64_t now)
{
    return words && lines->words == words && now <= lines->words_at + 1;
}

/* May one more line be written? `words` is hash_words of it, or 0 for a line that always differs.
 */
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

/* For failures about which the core kept no reason. */
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

/* The one line of vb_dropin_failed_once. */
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

static int failures_failed(struct vb_open *opened, const char *call, int error, bool said)
{
    struct vb_left_out left_out;

    if (opened->core) {
        vb_decline_close(opened->core, error);
        if (vb_dropin_settings()->explain && !said)
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
    vb_dropin_advice_needed();
    return failures_failed(vb_dropin_open_of(context), call, error, false);
}

int vb_dropin_failed_once(struct ibv_context *context, const char *call, int error)
{
    struct vb_open *opened = vb_dropin_open_of(context);
    bool said;

    vb_lock_take(&opened->lines.mutex);
    said = opened->lines.said_once;
    opened->lines.said_once = true;
    vb_lock_release(&opened->lines.mutex);
    failures_failed(opened, call, error, true);
    if (!said && opened->core)
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

/* All flushed requests of a queue have the same reason; only the first is logged. */
static bool is_logged(struct vb_lines *lines, const struct ibv_wc *wc)
{
    bool said;

    if (wc->status != IBV_WC_WR_FLUSH_ERR)
        return false;
    vb_lock_take(&lines->mutex);
    said = lines->flush == wc->vendor_err;
    lines->flush = wc->vendor_err;
    vb_lock_release(&lines->mutex);
    return said;
}

void vb_dropin_completion_failed(struct ibv_context *context, const struct ibv_wc *wc)
{
    struct vb_open *opened = vb_dropin_open_of(context);
    char text[TEXT] = "";
    int before = errno;
    struct vb_left_out left_out;

    vb_dropin_advice_needed();
    if (!vb_dropin_settings()->explain || is_logged(&opened->lines, wc) ||
        !may_write(&opened->lines, 0, &left_out))
        return;
    say_left_out(&left_out);
    vb_dropin_completion_text(context, wc->vendor_err, text, sizeof(text));
    vb_dropin_log(VB_LOG_ERRORS, "QP 0x%x, wr_id 0x%" PRIx64 ": %s%s%s", wc->qp_num, wc->wr_id,
                  vb_status_name(wc->status), *text ? ": " : "", text);
    errno = before;
}

/* The responder is a simulated host that is open in this process. */
static bool find_simulated_refusal(const struct vb_evidence *refused, struct vb_evidence *seen)
{
    bool found = false;

    vb_lock_take(&vb_dropin_contexts()->mutex);
    for (const struct vb_open *each = vb_dropin_contexts()->first; each && !found;
         each = each->next)
        found = each->simulated &&
                vb_evidence_of_refusal(&each->simulated->adapter.self, refused, seen);
    vb_lock_release(&vb_dropin_contexts()->mutex);
    return found;
}

/* Of a request that was refused, or that was never answered as the responder dropped its packets:
 * what the responder has kept. */
static bool find_refusal(struct ibv_context *context, const struct vb_evidence *refused,
                         struct vb_evidence *seen)
{
    struct vb_host *host = vb_dropin_open_of(context)->host;
    bool is_unheard = refused->check == VB_CHECK_NO_ANSWER && refused->has_psns &&
                      refused->silence == VB_HEARD_NOTHING;

    if (refused->check != VB_CHECK_REFUSED && !is_unheard)
        return false;
    return (host ? vb_direct_find_refusal(host->direct, refused, seen)
                 : find_simulated_refusal(refused, seen)) &&
           (seen->check == VB_CHECK_PARTITION) == is_unheard;
}

int vb_dropin_completion_text(struct ibv_context *context, uint32_t vendor_err, char *text,
                              size_t size)
{
    struct vb_context *core = vb_dropin_core(context);
    struct vb_evidence evidence, seen;
    bool found;

    if (!core || !vb_evidence_get(&core->adapter->self, vendor_err, &evidence))
        return 0;
    found = find_refusal(context, &evidence, &seen);
    return vb_evidence_say(&core->adapter->self, &evidence, found ? &seen : NULL, text, size);
}

static int say_open(int error, char *text, size_t size)
{
    char remedy[VB_REMEDY_SIZE];

    vb_dropin_open_remedy(-abs(error), remedy, sizeof(remedy));
    return snprintf(text, size, "%s", remedy);
}

VB_EXPORT int verbena_why(struct ibv_context *context, int error, char *text, size_t size)
{
    struct vb_context *core = context ? vb_dropin_core(context) : NULL;

    vb_dropin_advice_unneeded();
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
