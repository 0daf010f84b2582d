// SPDX-License-Identifier: Apache-2.0
#include "captured.h"

#include "check.h"

enum { FILE_HEADER = 24, PACKET_HEADER = 16, CM_QP = 1 };

static uint32_t word(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data;

    if (!file)
        perror(path);
    CHECK(file);
    CHECK_EQ(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    data = malloc(*size);
    CHECK(data && fread(data, 1, *size, file) == *size);
    fclose(file);
    return data;
}

static void gid_of(uint8_t gid[16], const uint8_t ipv4[4])
{
    memset(gid, 0, 16);
    gid[10] = gid[11] = 0xff;
    memcpy(gid + 12, ipv4, 4);
}

static struct connection *connection_of(struct captured *captured,
                                        const struct vb_dissection *fields, int from)
{
    int n = 0;

    while (n < captured->connection_count &&
           captured->connections[n].source_port != fields->udp.source_port)
        ++n;
    CHECK(n < CAPTURED_CONNECTIONS);
    if (n == captured->connection_count) {
        struct connection *made = &captured->connections[captured->connection_count++];

        made->source_port = fields->udp.source_port;
        made->transport = fields->bth.opcode & VB_TRANSPORT_MASK;
        made->mtu = 1024;
        gid_of(made->gid[from], fields->ipv4.source);
        gid_of(made->gid[!from], fields->ipv4.target);
    }
    return &captured->connections[n];
}

static bool is_seen(const struct captured *captured, const struct recorded *packet)
{
    for (uint32_t i = 0; i < captured->count; ++i) {
        const struct recorded *other = &captured->packets[i];

        if (other->from == packet->from && other->connection == packet->connection &&
            recorded_is_request(other))
            return true;
    }
    return false;
}

static void keep(struct captured *captured, const uint8_t *frame,
                 const struct vb_dissection *fields)
{
    struct recorded packet = {
        .bytes = frame + fields->bth_offset,
        .length = fields->icrc_offset - fields->bth_offset,
        .flags = vb_opcodes[fields->bth.opcode].flags,
        .fields = *fields,
    };
    struct connection *connection;

    if (captured->count)
        packet.from = memcmp(fields->ipv4.source, captured->packets[0].fields.ipv4.source, 4) != 0;
    connection = connection_of(captured, fields, packet.from);
    packet.connection = (int)(connection - captured->connections);
    connection->qp_num[!packet.from] = fields->bth.dest_qp;
    if (recorded_is_request(&packet) && !is_seen(captured, &packet))
        connection->first_psn[packet.from] = fields->bth.psn;
    if (!(packet.flags & VB_OPCODE_LAST))
        CHECK_EQ(fields->payload.length, connection->mtu);
    captured->packets[captured->count++] = packet;
}

void captured_open(struct captured *captured, const char *path)
{
    struct vb_dissection fields;
    size_t size;

    memset(captured, 0, sizeof(*captured));
    captured->data = read_file(path, &size);
    CHECK(size > FILE_HEADER && word(captured->data) == 0xa1b2c3d4);
    captured->packets = calloc(size / 64, sizeof(*captured->packets));
    CHECK(captured->packets);
    for (size_t at = FILE_HEADER; at < size;) {
        const uint8_t *frame = captured->data + at + PACKET_HEADER;
        uint32_t length = word(captured->data + at + 8);

        CHECK_EQ(length, word(captured->data + at + 12)); /* it is whole */
        at += PACKET_HEADER + length;
        CHECK(at <= size);
        if (!vb_wire_dissect(&fields, VB_LAYER_ETHERNET, frame, length) &&
            fields.bth.dest_qp != CM_QP)
            keep(captured, frame, &fields);
    }
}

void captured_close(struct captured *captured)
{
    free(captured->packets);
    free(captured->data);
}

const struct recorded *captured_next(const struct captured *captured, const struct recorded *packet)
{
    const struct recorded *end = captured->packets + captured->count;

    for (const struct recorded *next = packet + 1; next != end; ++next)
        if (next->from == packet->from && next->connection == packet->connection &&
            recorded_is_request(next) == recorded_is_request(packet))
            return next;
    return NULL;
}
