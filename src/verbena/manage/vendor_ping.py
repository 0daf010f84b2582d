# SPDX-License-Identifier: Apache-2.0
"""The vendor class of ibping: OpenIB's, 0x32, with OUI 0x001405.

ibping sends Get with attribute 0, and its server answers with its host's name. An agent that has no
server answers with ``ping_response`` too.
"""

from __future__ import annotations

from .attribute_ids import MgmtClass
from .errors import MadError
from .mad import VendorMad
from .record import Record, text

__all__ = ["OPENIB_OUI", "PingData", "ping_request", "ping_response"]

OPENIB_OUI = 0x001405
RMPP_WITHOUT = 1  # RMPPVersion of a MAD of the class that is not active


class PingData(Record, size=216):
    """The data of ibping's answer."""

    host: str = text(0, 216, "Name of the host that answers, with its domain.")


def ping_request(transaction_id: int) -> VendorMad:
    """Return ibping's request."""
    return VendorMad(
        mgmt_class=MgmtClass.OPENIB_PING,
        transaction_id=transaction_id,
        oui=OPENIB_OUI,
        rmpp_version=RMPP_WITHOUT,
    )


def ping_response(request: VendorMad, host: str) -> VendorMad:
    """Return the answer to ibping's request. Raises MadError if it is none, or for a long name."""
    if request.mgmt_class != MgmtClass.OPENIB_PING or request.oui != OPENIB_OUI:
        raise MadError(f"class {request.mgmt_class:#x} with OUI {request.oui:#x} is no ibping")
    return request.response(PingData(host=host))
