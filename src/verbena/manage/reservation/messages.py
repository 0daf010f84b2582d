# SPDX-License-Identifier: Apache-2.0
"""The MADs of reservations: a vendor class with an OUI that nobody owns.

``ReservationAgent`` and ``LinkBudgets`` exchange them between QPs 1. Messages along a path have the
method Send; LinkBudgetTable has Set and GetResp.
"""

from __future__ import annotations

from ..agents.packets import MadPacket
from ..attribute_ids import Method, MgmtClass
from ..codes import Code
from ..mad import GENERAL_QKEY, VendorMad
from ..record import Record, bits, code, key, lid_field, parts

__all__ = [
    "BUDGETS_OF_TABLE",
    "LinkBudget",
    "LinkBudgetTable",
    "RESERVATION_CLASS",
    "RESERVATION_OUI",
    "RefusalReason",
    "ReservationKind",
    "ReservationMessage",
    "ReservationStep",
    "reservation_mad",
]

RESERVATION_CLASS = MgmtClass(0x4A)
RESERVATION_OUI = 0x025642  # locally administered, so that it is no company's
BUDGETS_OF_TABLE = 16


class ReservationStep(Code):
    """AttributeID of the class: what a message does."""

    RESERVE = 0x10, "Reserve on the next link, and pass it on towards the destination."
    GRANT = 0x11, "Every link is reserved; goes back to the source."
    REFUSE = 0x12, "A link was not reserved; goes back and releases those before it."
    RELEASE = 0x13, "Release every link; goes to the destination."
    RELEASED = 0x14, "Every link is released; goes back to the source."
    BUDGETS = 0x20, "LinkBudgetTable: what the subnet manager lets a node give away."


class ReservationKind(Code):
    """What is reserved."""

    BANDWIDTH = 1, "In Mb/s."
    BUFFER = 2, "In blocks of 64 bytes of the receiver's buffer."


class RefusalReason(Code):
    """Why a reservation was refused."""

    NONE = 0
    LINK_FULL = 1, "The link has less left than was asked for."
    NO_PATH = 2, "A switch has no path to the destination."
    NO_BUDGET = 3, "The subnet manager has given the link no budget."
    LOOP = 4, "The path leads back to a node where it was."
    NO_ANSWER = 5, "No answer came to any try."
    EXPIRED = 6, "The lease ended before an answer came."


class ReservationMessage(Record, size=40):
    """A message along a path. ``refusing_lid`` and ``refusing_port`` name the link of a REFUSE."""

    reservation: int = key(0, 64, "The reservation, by a number of its source's.")
    source_lid: int = lid_field(8, "LID of the source.")
    dlid: int = lid_field(10, "LID of the destination.")
    kind: ReservationKind = code(12, 0, 8, ReservationKind, "What is reserved.")
    reason: RefusalReason = code(13, 0, 8, RefusalReason, "Why a REFUSE was sent.")
    links: int = bits(14, 0, 8, "Links reserved so far.")
    refusing_port: int = bits(15, 0, 8, "Port of the link that was refused.")
    refusing_lid: int = lid_field(16, "LID of the node that refused.")
    lease: int = bits(18, 0, 16, "Seconds until the reservation lapses, unless it is renewed.")
    amount: int = bits(20, 0, 32, "How much is reserved, in the unit of the kind.")
    free: int = bits(24, 0, 32, "The least that is left on the links, or on that which refused.")
    messages: int = bits(28, 0, 16, "MADs of the exchange so far, this one included.")


class LinkBudget(Record, size=12):
    """What a node may give away on the link at one of its ports."""

    port: int = bits(0, 0, 8, "The output port; 0: the entry is empty.")
    neighbor_lid: int = lid_field(2, "LID of the node at the other end.")
    bandwidth: int = bits(4, 0, 32, "Mb/s.")
    buffer: int = bits(8, 0, 32, "Blocks of 64 bytes of the neighbour's buffer.")


class LinkBudgetTable(Record, size=12 * BUDGETS_OF_TABLE, attribute=ReservationStep.BUDGETS):
    """A block of budgets; AttributeModifier is its number, and block 0 replaces all others."""

    budgets: tuple[LinkBudget, ...] = parts(0, LinkBudget, BUDGETS_OF_TABLE, "The budgets.")


def reservation_mad(
    step: int, record: Record, number: int, *, method: int = Method.SEND, modifier: int = 0
) -> bytes:
    """Return the bytes of a MAD with this message or table."""
    mad = VendorMad(
        mgmt_class=RESERVATION_CLASS,
        method=Method(method),
        transaction_id=number,
        attribute_id=step,
        attribute_modifier=modifier,
        oui=RESERVATION_OUI,
    )
    return mad.with_attribute(record).replace(attribute_id=step).pack()


def reservation_packet(mad: bytes, port: int, slid: int, dlid: int) -> MadPacket:
    """Return the packet that carries a MAD from QP 1 to QP 1."""
    return MadPacket(mad, port, dlid, slid, 1, 1, q_key=GENERAL_QKEY)
