// SPDX-License-Identifier: Apache-2.0
/*
 * A fuzzing target: any bytes into the dissector, and what it accepts out of it again. The lowest
 * bit of the first byte is the layer.
 */
#include "wire/dissect.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vb_dissection packet;
    uint8_t icrc[VB_ICRC];

    if (size == 0)
        return 0;
    const uint32_t length = (uint32_t)size - 1;
    enum vb_dissect_error error = vb_wire_dissect(&packet, data[0] & 1, data + 1, length);
    require(vb_wire_dissect_error_name(error) != NULL && vb_wire_dissect_error_text(error) != NULL);
    if (error != VB_DISSECT_OK) {
        require(packet.error_offset <= length);
        return 0;
    }
    vb_wire_dissect_icrc(&packet, data + 1, icrc);
    uint8_t *again = malloc(length);
    require(again != NULL);
    require(vb_wire_dissect_write(&packet, again, length) == (int)length);
    require(memcmp(again, data + 1, length) == 0);
    free(again);
    return 0;
}
