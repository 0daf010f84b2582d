# SPDX-License-Identifier: Apache-2.0
"""The forwarding tables of a switch, as the subnet manager has set them (IBA 18.2.4).

A switch's ``NodeAgent`` has one as ``forwarding``; its SMA writes blocks, and those who forward
packets ask for output ports. Rows that nobody has set take no memory.
"""

from __future__ import annotations

from ..smp_attributes import NO_PATH

__all__ = ["FIRST_MULTICAST_LID", "SwitchTables"]

FIRST_MULTICAST_LID = 0xC000
LINEAR_BLOCK, MULTICAST_BLOCK, MULTICAST_PORTS = 64, 32, 16
EMPTY_LINEAR = bytes([NO_PATH]) * LINEAR_BLOCK


class SwitchTables:
    """The linear and the multicast forwarding table, with room for so many LIDs."""

    __slots__ = ("_linear", "_multicast", "linear_cap", "multicast_cap")

    def __init__(self, linear_cap: int, multicast_cap: int) -> None:
        self.linear_cap = linear_cap
        self.multicast_cap = multicast_cap
        self._linear = bytearray()
        self._multicast: dict[tuple[int, int], bytearray] = {}  # by block and position

    def has_linear_block(self, block: int) -> bool:
        """Whether the table has this block of 64 LIDs."""
        return block * LINEAR_BLOCK < self.linear_cap

    def linear_block(self, block: int) -> bytes:
        """Return the output ports of 64 LIDs; 255 is none."""
        at = block * LINEAR_BLOCK
        return bytes(self._linear[at : at + LINEAR_BLOCK]) or EMPTY_LINEAR

    def set_linear_block(self, block: int, ports: bytes) -> bool:
        """Write the output ports of 64 LIDs. Returns whether one has changed."""
        at = block * LINEAR_BLOCK
        if len(self._linear) < at + LINEAR_BLOCK:
            missing = at + LINEAR_BLOCK - len(self._linear)
            self._linear += bytes([NO_PATH]) * missing
        elif self._linear[at : at + LINEAR_BLOCK] == ports:
            return False
        self._linear[at : at + LINEAR_BLOCK] = ports
        return True

    def linear_entries(self) -> bytes:
        """Return the output ports of all LIDs up to the last block that was set."""
        return bytes(self._linear)

    def multicast_rows(self) -> dict[tuple[int, int], bytes]:
        """Return the blocks of port masks that are not empty, by block and position."""
        return {key: bytes(masks) for key, masks in self._multicast.items()}

    def output_port(self, lid: int) -> int:
        """Return the output port of a LID, or 255. LinearFDBTop is the caller's to look at."""
        return self._linear[lid] if lid < len(self._linear) else NO_PATH

    def has_multicast_block(self, block: int) -> bool:
        """Whether the table has this block of 32 multicast LIDs."""
        return block * MULTICAST_BLOCK < self.multicast_cap

    def multicast_block(self, block: int, position: int) -> bytes:
        """Return the port masks of 32 multicast LIDs for the 16 ports of a position."""
        return bytes(self._multicast.get((block, position), bytes(64)))

    def set_multicast_block(self, block: int, position: int, masks: bytes) -> bool:
        """Write port masks. Returns whether one has changed."""
        if self.multicast_block(block, position) == masks:
            return False
        if any(masks):
            self._multicast[block, position] = bytearray(masks)
        else:
            del self._multicast[block, position]
        return True

    def multicast_ports(self, mlid: int) -> list[int]:
        """Return the output ports of a multicast LID, ascending."""
        block, entry = divmod(mlid - FIRST_MULTICAST_LID, MULTICAST_BLOCK)
        ports = []
        for at_block, position in sorted(self._multicast):
            if at_block == block:
                row = self._multicast[at_block, position]
                mask = row[2 * entry] << 8 | row[2 * entry + 1]
                ports += [
                    position * MULTICAST_PORTS + k for k in range(MULTICAST_PORTS) if mask >> k & 1
                ]
        return ports
