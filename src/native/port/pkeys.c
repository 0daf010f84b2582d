// SPDX-License-Identifier: Apache-2.0
#include "port/pkeys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One number, hexadecimal with 0x in front, up to a comma or the end; NULL: it is none. */
static const char *take_one(const char *at, uint16_t *pkey)
{
    bool is_hex = at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
    const char *digits = is_hex ? at + 2 : at;
    size_t length = strspn(digits, is_hex ? "0123456789abcdefABCDEF" : "0123456789");
    unsigned long value;

    if (!length || length > 5 || (digits[length] && digits[length] != ','))
        return NULL;
    value = strtoul(digits, NULL, is_hex ? 16 : 10);
    if (value > UINT16_MAX || !vb_pkey_is_valid((uint16_t)value))
        return NULL;
    *pkey = (uint16_t)value;
    return digits + length;
}

int vb_pkeys_parse(const char *text, uint16_t pkeys[VB_MAX_PKEYS])
{
    uint16_t found[VB_MAX_PKEYS] = {VB_PKEY_DEFAULT};
    const char *at = text && *text ? text : NULL;

    for (int i = 0; at; ++i) {
        at = i < VB_MAX_PKEYS ? take_one(at, &found[i]) : NULL;
        if (!at)
            return -EINVAL;
        if (!*at)
            break;
        ++at;
    }
    memcpy(pkeys, found, sizeof(found));
    return 0;
}
