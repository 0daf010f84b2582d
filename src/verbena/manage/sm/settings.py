# SPDX-License-Identifier: Apache-2.0
"""Settings of a subnet manager, with OpenSM's defaults where it has the setting.

``SubnetManager`` takes them. They are values: a changed setting is a new ``SmSettings``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import MadError
from .partitions import Partitions

__all__ = ["FIRST_LID", "LAST_LID", "SmSettings"]

FIRST_LID, LAST_LID = 1, 0xBFFF  # unicast LIDs (IBA 4.1.3)


@dataclass(frozen=True)
class SmSettings:
    """How a subnet manager works. Times are in seconds unless they are time codes.

    ``priority``: 0 to 15, in the election of the master, of which OpenSM takes part if it has the
    same ``sm_key``. ``engine``: a name of
    ``verbena.fabrics.ENGINES`` that makes forwarding tables, with ``engine_options``;
    ``node_attributes`` has, by node GUID, what engines for one topology read ("group",
    "coordinate"). ``lmc``: each end port gets 2 to this power LIDs. ``guid_to_lid``: first LIDs
    that GUIDs of ports had in an earlier run; with ``keep_lids`` ports without one keep the LID
    that they have. ``most_smps``: requests that wait for a response at
    once. ``timeout`` and ``retries`` are those of one request; a node that answers none of its
    retries is left out of the rest of the sweep. ``sweep_interval``: between light sweeps of a
    master. ``polling_timeout`` and ``polling_retries``: how a standby watches its master.
    ``enforce_partitions``: switches check P_Keys at ports that face end ports, unless every port
    is a full member of the default partition alone. ``lane_tables``: set SLtoVL and VL arbitration
    tables even if the engine needs one lane only. Time codes: ``subnet_timeout``,
    ``packet_life_time``, ``hoq_life`` between switches and ``leaf_hoq_life`` towards end ports.
    """

    priority: int = 0
    sm_key: int = 1
    m_key: int = 0
    m_key_protect_bits: int = 0
    m_key_lease_period: int = 0
    gid_prefix: int = 0xFE80_0000_0000_0000
    lmc: int = 0
    first_lid: int = FIRST_LID
    last_lid: int = LAST_LID
    guid_to_lid: Mapping[int, int] = field(default_factory=dict)
    keep_lids: bool = True
    engine: str = "minhop"
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    node_attributes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    node_names: Mapping[int, str] = field(default_factory=dict)
    partitions: Partitions = field(default_factory=Partitions)
    enforce_partitions: bool = True
    most_smps: int = 32
    timeout: float = 0.2
    retries: int = 3
    sweep_interval: float = 10.0
    retry_interval: float = 1.0
    polling_timeout: float = 10.0
    polling_retries: int = 4
    lane_tables: bool = False
    most_operational_vls: int = 5
    vl_high_limit: int = 0
    subnet_timeout: int = 18
    packet_life_time: int = 18
    hoq_life: int = 18
    leaf_hoq_life: int = 16
    vl_stall_count: int = 7
    local_phy_errors: int = 8
    overrun_errors: int = 8

    @property
    def switches_check_p_keys(self) -> bool:
        """Switches are to check P_Keys."""
        return self.enforce_partitions and self.partitions != Partitions()

    def __post_init__(self) -> None:
        ranges = {
            "priority": 15,
            "lmc": 7,
            "sm_key": (1 << 64) - 1,
            "m_key": (1 << 64) - 1,
            "gid_prefix": (1 << 64) - 1,
            "m_key_protect_bits": 3,
            "m_key_lease_period": 0xFFFF,
            "subnet_timeout": 31,
            "packet_life_time": 31,
            "hoq_life": 31,
            "leaf_hoq_life": 31,
            "vl_stall_count": 7,
            "local_phy_errors": 15,
            "overrun_errors": 15,
            "vl_high_limit": 255,
            "most_operational_vls": 5,
        }
        for name, most in ranges.items():
            if not 0 <= getattr(self, name) <= most:
                raise MadError(f"{name} is {getattr(self, name)}, and may be 0 to {most:#x}")
        if not FIRST_LID <= self.first_lid <= self.last_lid <= LAST_LID:
            raise MadError(
                f"LIDs are {self.first_lid} to {self.last_lid}, and unicast LIDs are {FIRST_LID} to"
                f" {LAST_LID}"
            )
        if self.most_smps < 1 or self.retries < 0:
            raise MadError("most_smps is at least 1, and retries at least 0")
        for name in ("timeout", "sweep_interval", "retry_interval", "polling_timeout"):
            if not getattr(self, name) > 0:
                raise MadError(f"{name} is {getattr(self, name)}, and has to be positive")
