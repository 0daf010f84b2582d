// SPDX-License-Identifier: Apache-2.0
#include "port/wrap/fault_rules.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "wire/headers.h"

#define ALWAYS         (UINT64_C(1) << 32)
#define SECOND         UINT64_C(1000000000)
#define LONGEST        (60 * SECOND)
#define DEFAULT_WITHIN (10 * UINT64_C(1000000))

enum { LARGEST_PACKET = VB_HEADERS_MAX + 4096 + 3, BETWEEN = ';' };

struct word {
    const char *at;
    size_t length;
};

struct parser {
    struct vb_fault_rules *rules;
    struct vb_fault_rule *rule; /* the one at hand */
    char *error;
    size_t size;
};

static int refuse(struct parser *parser, struct word word, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(struct parser *parser, struct word word, const char *format, ...)
{
    va_list arguments;
    int length;

    if (!parser->size)
        return -EINVAL;
    length = snprintf(parser->error, parser->size,
                      "\"%.*s\": ", (int)(word.length < 60 ? word.length : 60), word.at);
    if (length < 0 || (size_t)length >= parser->size)
        return -EINVAL;
    va_start(arguments, format);
    vsnprintf(parser->error + length, parser->size - (size_t)length, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

static bool equals(struct word word, const char *text)
{
    return strlen(text) == word.length && memcmp(word.at, text, word.length) == 0;
}

/* ---- numbers ---- */

static int digit(char c, unsigned base)
{
    int value = isdigit((unsigned char)c) ? c - '0'
                : c >= 'a' && c <= 'f'    ? c - 'a' + 10
                : c >= 'A' && c <= 'F'    ? c - 'A' + 10
                                          : -1;

    return value < (int)base ? value : -1;
}

/* Decimal, or hexadecimal after 0x. */
static bool read_number(struct word word, uint64_t most, uint64_t *value)
{
    unsigned base = word.length > 2 && word.at[0] == '0' && (word.at[1] | 32) == 'x' ? 16 : 10;
    size_t i = base == 16 ? 2 : 0;

    *value = 0;
    if (i == word.length)
        return false;
    for (; i < word.length; ++i) {
        int next = digit(word.at[i], base);

        if (next < 0 || *value > (UINT64_MAX - (unsigned)next) / base)
            return false;
        *value = *value * base + (unsigned)next;
    }
    return *value <= most;
}

/* A decimal number with up to nine places, in units of 1e-9. */
static bool read_decimal(struct word word, uint64_t most, uint64_t *nano)
{
    const char *point = memchr(word.at, '.', word.length);
    struct word whole = {word.at, point ? (size_t)(point - word.at) : word.length};
    size_t places = point ? word.length - whole.length - 1 : 0;
    uint64_t part = 0;

    if (!read_number(whole, most, nano) || places > 9 || (point && !places))
        return false;
    for (size_t i = 0; i < 9; ++i) {
        char c = i < places ? point[1 + i] : '0';

        if (!isdigit((unsigned char)c))
            return false;
        part = part * 10 + (unsigned)(c - '0');
    }
    *nano = *nano * SECOND + part;
    return *nano <= most * SECOND;
}

static bool read_chance(struct word word, uint64_t *chance)
{
    uint64_t nano;

    if (word.length < 2 || word.at[word.length - 1] != '%' ||
        !read_decimal((struct word){word.at, word.length - 1}, 100, &nano))
        return false;
    *chance = nano * (ALWAYS >> 11) / (100 * SECOND >> 11); /* 2^11 divides both */
    return true;
}

static bool read_time(struct word word, uint64_t *ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", SECOND}};
    uint64_t nano;

    for (size_t i = 0; i < sizeof(units) / sizeof(*units); ++i) {
        size_t unit = strlen(units[i].name);

        if (word.length <= unit || memcmp(word.at + word.length - unit, units[i].name, unit) != 0)
            continue;
        if (!read_decimal((struct word){word.at, word.length - unit}, LONGEST / units[i].ns, &nano))
            continue;
        *ns = nano / SECOND * units[i].ns + nano % SECOND * units[i].ns / SECOND;
        return true;
    }
    return false;
}

/* "a-b", or "a" for both; what a and b are is read by `read`. */
static bool split_range(struct word word, struct word *first, struct word *last)
{
    const char *dash = memchr(word.at, '-', word.length);

    *first = *last = word;
    if (dash) {
        first->length = (size_t)(dash - word.at);
        *last = (struct word){dash + 1, word.length - first->length - 1};
    }
    return first->length && last->length;
}

static bool read_times(struct word word, uint64_t *least, uint64_t *most)
{
    struct word first, last;

    return split_range(word, &first, &last) && read_time(first, least) && read_time(last, most) &&
           *least <= *most;
}

/* ---- name=value ---- */

typedef int (*reader)(struct parser *parser, struct word word, struct word value);

static int read_direction(struct parser *parser, struct word word, struct word value)
{
    if (equals(value, "out"))
        parser->rule->directions = 1 << VB_WRAP_OUT;
    else if (equals(value, "in"))
        parser->rule->directions = 1 << VB_WRAP_IN;
    else if (equals(value, "both"))
        parser->rule->directions = 1 << VB_WRAP_OUT | 1 << VB_WRAP_IN;
    else
        return refuse(parser, word, "dir is out, in or both");
    return 0;
}

static int read_qp(struct parser *parser, struct word word, struct word value)
{
    uint64_t number;

    if (!read_number(value, VB_QPN_MASK, &number))
        return refuse(parser, word, "qp is a number of 24 bits, as in qp=18 or qp=0x12");
    parser->rule->has_qp = true;
    parser->rule->qp = (uint32_t)number;
    return 0;
}

static int read_psn(struct parser *parser, struct word word, struct word value)
{
    struct word from, to;
    uint64_t first, last;

    if (!split_range(value, &from, &to) || !read_number(from, VB_PSN_MASK, &first) ||
        !read_number(to, VB_PSN_MASK, &last))
        return refuse(parser, word, "psn is a number of 24 bits or a range, as in psn=100-120");
    parser->rule->has_psn = true;
    parser->rule->psn_first = (uint32_t)first;
    parser->rule->psn_last = (uint32_t)last;
    return 0;
}

static int read_opcodes(struct parser *parser, struct word word, struct word value)
{
    while (true) {
        const char *comma = memchr(value.at, ',', value.length);
        size_t length = comma ? (size_t)(comma - value.at) : value.length;

        if (!vb_fault_add_opcode(&parser->rule->opcodes, value.at, length))
            return refuse(parser, word,
                          "\"%.*s\" is no opcode; there are send, write, read, atomic, "
                          "read-response, atomic-response, ack, nak, rnr, request, response, cnp, "
                          "names as rc-send-only, and numbers",
                          (int)(length < 40 ? length : 40), value.at);
        if (!comma)
            return 0;
        value = (struct word){comma + 1, value.length - length - 1};
    }
}

static int read_count(struct parser *parser, struct word word, struct word value, uint64_t most,
                      uint64_t *count)
{
    if (read_number(value, most, count) && *count)
        return 0;
    return refuse(parser, word, "a number from 1 to %" PRIu64 " is expected", most);
}

static int read_nth(struct parser *parser, struct word word, struct word value)
{
    return read_count(parser, word, value, UINT32_MAX, &parser->rule->nth);
}

static int read_every(struct parser *parser, struct word word, struct word value)
{
    return read_count(parser, word, value, UINT32_MAX, &parser->rule->every);
}

static int read_limit(struct parser *parser, struct word word, struct word value)
{
    return read_count(parser, word, value, UINT32_MAX, &parser->rule->limit);
}

static int read_by(struct parser *parser, struct word word, struct word value)
{
    uint64_t by;
    int error = read_count(parser, word, value, VB_FAULT_HOLD_MOST, &by);

    parser->rule->by = (uint32_t)by;
    return error;
}

static int read_within(struct parser *parser, struct word word, struct word value)
{
    if (read_time(value, &parser->rule->within))
        return 0;
    return refuse(parser, word, "within is a time up to 60s, as in within=10ms");
}

static int read_copies(struct parser *parser, struct word word, struct word value)
{
    uint64_t copies;
    int error = read_count(parser, word, value, 16, &copies);

    parser->rule->copies = (uint32_t)copies;
    return error;
}

static int read_offset(struct parser *parser, struct word word, struct word value)
{
    uint64_t offset;

    if (!read_number(value, LARGEST_PACKET - 1, &offset))
        return refuse(parser, word, "at is the place of a byte, counted from the BTH's first, 0");
    parser->rule->has_offset = true;
    parser->rule->offset = (uint32_t)offset;
    return 0;
}

static int read_length(struct parser *parser, struct word word, struct word value)
{
    uint64_t length;

    if (!read_number(value, LARGEST_PACKET, &length) || length < VB_BTH)
        return refuse(parser, word, "to is the length that is left, %d or more: the BTH's", VB_BTH);
    parser->rule->has_length = true;
    parser->rule->length = (uint32_t)length;
    return 0;
}

static int read_icrc(struct parser *parser, struct word word, struct word value)
{
    if (!equals(value, "good"))
        return refuse(parser, word, "icrc=good is the only one; without it the ICRC is wrong");
    parser->rule->good_icrc = true;
    return 0;
}

enum { ANY_ACTION = (1 << VB_FAULT_ACTIONS) - 1 };

static const struct option {
    const char *name;
    unsigned actions; /* bits 1 << enum vb_fault_action */
    reader read;
} options[] = {
    {"dir", ANY_ACTION, read_direction},
    {"qp", ANY_ACTION, read_qp},
    {"psn", ANY_ACTION, read_psn},
    {"opcode", ANY_ACTION, read_opcodes},
    {"nth", ANY_ACTION, read_nth},
    {"every", ANY_ACTION, read_every},
    {"limit", ANY_ACTION, read_limit},
    {"by", 1 << VB_FAULT_REORDER, read_by},
    {"within", 1 << VB_FAULT_REORDER, read_within},
    {"copies", 1 << VB_FAULT_DUPLICATE, read_copies},
    {"at", 1 << VB_FAULT_CORRUPT, read_offset},
    {"to", 1 << VB_FAULT_TRUNCATE, read_length},
    {"icrc", 1 << VB_FAULT_CORRUPT | 1 << VB_FAULT_TRUNCATE, read_icrc},
};

/* The names that go with this action, for an error. */
static void list_options(enum vb_fault_action action, char *text, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < sizeof(options) / sizeof(*options) && used < size; ++i)
        if (options[i].actions >> action & 1)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                     options[i].name);
}

static int read_option(struct parser *parser, struct word word, const char *equal)
{
    struct word name = {word.at, (size_t)(equal - word.at)};
    struct word value = {equal + 1, word.length - name.length - 1};
    char known[128];

    for (size_t i = 0; i < sizeof(options) / sizeof(*options); ++i)
        if (equals(name, options[i].name) && options[i].actions >> parser->rule->action & 1)
            return options[i].read(parser, word, value);
    list_options(parser->rule->action, known, sizeof(known));
    return refuse(parser, word, "%s takes %s", vb_fault_verb(parser->rule->action), known);
}

/* ---- rules ---- */

static const char *const verbs[VB_FAULT_ACTIONS] = {"drop",  "duplicate", "reorder",
                                                    "delay", "corrupt",   "truncate"};
static const char *const participles[VB_FAULT_ACTIONS] = {"dropped", "duplicated", "reordered",
                                                          "delayed", "corrupted",  "truncated"};

const char *vb_fault_verb(enum vb_fault_action action)
{
    return verbs[action];
}

const char *vb_fault_participle(enum vb_fault_action action)
{
    return participles[action];
}

static bool next_word(struct word *rest, struct word *word)
{
    while (rest->length && isspace((unsigned char)*rest->at)) {
        ++rest->at;
        --rest->length;
    }
    *word = (struct word){rest->at, 0};
    while (word->length < rest->length && !isspace((unsigned char)word->at[word->length]))
        ++word->length;
    rest->at += word->length;
    rest->length -= word->length;
    return word->length;
}

static int read_rule_word(struct parser *parser, struct word word)
{
    struct vb_fault_rule *rule = parser->rule;
    const char *equal = memchr(word.at, '=', word.length);

    if (equal)
        return read_option(parser, word, equal);
    if (word.at[word.length - 1] == '%') {
        if (read_chance(word, &rule->chance))
            return 0;
        return refuse(parser, word, "a chance is from 0%% to 100%%, as in 0.1%%");
    }
    if (rule->action == VB_FAULT_DELAY && !rule->delay_most) {
        if (read_times(word, &rule->delay_least, &rule->delay_most) && rule->delay_most)
            return 0;
        return refuse(parser, word, "a delay is up to 60s or a range, as in 2ms, 50us or 1ms-5ms");
    }
    return refuse(parser, word, "neither a chance (1%%) nor a selector (opcode=ack)");
}

static int read_rule(struct parser *parser, enum vb_fault_action action, struct word verb,
                     struct word rest)
{
    struct vb_fault_rules *rules = parser->rules;
    struct vb_fault_rule *rule;
    struct word word = verb;

    if (rules->count == VB_FAULT_RULES)
        return refuse(parser, verb, "more than %d rules", VB_FAULT_RULES);
    rule = parser->rule = &rules->rule[rules->count++];
    *rule = (struct vb_fault_rule){.action = action,
                                   .directions = 1 << VB_WRAP_OUT,
                                   .chance = ALWAYS,
                                   .by = 1,
                                   .copies = 1,
                                   .within = DEFAULT_WITHIN,
                                   .text = (uint16_t)(verb.at - rules->text)};
    do {
        rule->text_length = (uint16_t)(word.at + word.length - verb.at);
        if (!next_word(&rest, &word))
            break;
    } while (!read_rule_word(parser, word));
    if (word.length)
        return -EINVAL;
    if (action == VB_FAULT_DELAY && !rule->delay_most)
        return refuse(parser, verb, "how long? as in delay 2ms");
    return 0;
}

/* "seed 7", "hold 4096" */
static int read_setting(struct parser *parser, struct word name, struct word rest)
{
    bool is_seed = equals(name, "seed");
    struct word word, more;
    uint64_t value;

    if (!next_word(&rest, &word))
        return refuse(parser, name, "a number is missing");
    if (!read_number(word, is_seed ? UINT64_MAX : VB_FAULT_HOLD_MOST, &value) ||
        (!is_seed && !value))
        return refuse(parser, word, "%s is a number%s", is_seed ? "seed" : "hold",
                      is_seed ? "" : " of packets from 1 to 65536");
    if (next_word(&rest, &more))
        return refuse(parser, more, "what separates rules is \";\"");
    if (is_seed)
        parser->rules->seed = value;
    else
        parser->rules->hold = (uint32_t)value;
    return 0;
}

static int read_part(struct parser *parser, struct word rest)
{
    struct word word;

    if (!next_word(&rest, &word))
        return 0;
    if (equals(word, "seed") || equals(word, "hold"))
        return read_setting(parser, word, rest);
    for (int action = 0; action < VB_FAULT_ACTIONS; ++action)
        if (equals(word, verbs[action]))
            return read_rule(parser, (enum vb_fault_action)action, word, rest);
    return refuse(parser, word,
                  "a rule begins with drop, duplicate, reorder, delay, corrupt, truncate, seed or "
                  "hold");
}

int vb_fault_parse(const char *text, struct vb_fault_rules *rules, char *error, size_t size)
{
    struct parser parser = {.rules = rules, .error = error, .size = size};
    size_t length = text ? strlen(text) : 0;
    const char *at = rules->text, *end;
    int result = 0;

    memset(rules, 0, sizeof(*rules));
    rules->seed = 1;
    rules->hold = VB_FAULT_HOLD;
    if (length >= sizeof(rules->text))
        return refuse(&parser, (struct word){text, 20}, "rules of more than %d characters",
                      VB_FAULT_TEXT - 1);
    if (length)
        memcpy(rules->text, text, length);
    for (end = at + length; !result && at <= end;) {
        const char *stop = memchr(at, BETWEEN, (size_t)(end - at));

        stop = stop ? stop : end;
        result = read_part(&parser, (struct word){at, (size_t)(stop - at)});
        at = stop + 1;
    }
    return result;
}
