# SPDX-License-Identifier: Apache-2.0
"""A port of a node as its management agent has it: PortInfo and the tables of a port.

``NodeAgent`` makes them. ``info`` and the tables are the bytes of the attributes, so that a Get
copies them; the other modules of this package change them by ``PortInfo.put``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..codes import IbMtu, LinkDownState, NodeType, PortPhysicalState, PortState
from ..errors import MadError
from ..smp_attributes import PortInfo
from .link_speeds import WIDTHS, LinkRate, LinkSettings
from .tallies import PortTally

if TYPE_CHECKING:
    from .node_agent import NodeAgent

__all__ = ["DEFAULT_P_KEY", "NodePort"]

DEFAULT_P_KEY = b"\xff\xff"
GID_PREFIX = 0xFE80000000000000
SUBNET_TIMEOUT = 18  # 1.07 s, which OpenSM gives, too
STATE, PHYSICAL = 32, 33  # bytes of PortInfo whose halves are PortState and PortPhysicalState
FAST = LinkRate(4, "NDR")
START_WEIGHT = 64
NOT_HELD = 100e9  # bits in a second: 4xEDR


class NodePort:
    """A port: of a switch port 0 is the switch itself, and the others are its links'.

    ``peer`` is the port at the other end of its cable, and ``is_cut`` says that the cable is
    there and does not carry. ``loss`` is the chance that a packet is damaged on it. ``throttle`` is
    how many bits of data its receiver takes in a second (0: as many as the link brings), and
    ``cable_rate`` the fastest rate to which it trains (None: that of the ports). ``link_rate_bps``
    are the bits of packets that it carries in a second, by its active width and speed. ``is_end``
    is a port with LIDs: of a channel adapter or router, or port 0 of a switch.
    """

    __slots__ = (
        "cable_rate",
        "extended_info",
        "guids",
        "info",
        "is_blinking",
        "is_cut",
        "is_end",
        "lease_end",
        "link_rate_bps",
        "loss",
        "m_key",
        "node",
        "number",
        "p_keys",
        "peer",
        "rate",
        "sl_to_vl",
        "tally",
        "throttle",
        "vl_arbitration",
    )

    def __init__(self, node: NodeAgent, number: int, rate: LinkRate | None = None) -> None:
        self.node = node
        self.number = number
        self.is_end = number == 0 or node.profile.node_type != NodeType.SWITCH
        self.peer: NodePort | None = None
        self.is_cut = False
        self.loss = 0.0
        self.throttle = 0.0
        self.cable_rate: LinkRate | None = None
        self.m_key = 0  # as in info: every SMP is checked against it
        self.lease_end: float | None = None  # when the protection lapses, in seconds
        self.tally = PortTally()
        self.is_blinking = False
        self.sl_to_vl: bytearray | None = None  # 8 bytes for each input port
        self.vl_arbitration: bytearray | None = None  # 4 blocks of 64 bytes
        self.extended_info = bytearray(64)
        profile = node.profile
        keys = profile.partition_cap if self.is_end else profile.partition_enforcement_cap
        self.p_keys = bytearray(max(keys, 1) * 2)
        self.p_keys[:2] = DEFAULT_P_KEY
        self.guids = bytearray(profile.guid_cap * 8 if self.is_end else 0)
        self.info = bytearray(64)
        self._fill_info()
        self.set_rate(rate or FAST)

    def _fill_info(self) -> None:
        profile, put = self.node.profile, PortInfo.put
        is_switch_itself = self.number == 0
        base_port_0 = is_switch_itself and not profile.enhanced_port_0
        put(
            self.info,
            mtu_cap=profile.mtu_cap,
            neighbor_mtu=IbMtu.BYTES_256 if is_switch_itself else profile.mtu_cap,
            vl_cap=profile.vl_cap,
            operational_vls=profile.vl_cap,
            vl_arb_high_cap=profile.vl_arb_high_cap,
            vl_arb_low_cap=profile.vl_arb_low_cap,
            link_down_default_state=LinkDownState.POLLING,
            port_state=PortState.ACTIVE if base_port_0 else PortState.DOWN,
            port_physical_state=PortPhysicalState.LINK_UP if base_port_0 else 2,
        )
        if self.is_end:
            put(
                self.info,
                gid_prefix=GID_PREFIX,
                capability_mask=profile.capability_mask,
                capability_mask2=profile.capability_mask2,
                guid_cap=profile.guid_cap,
                subnet_timeout=SUBNET_TIMEOUT,
                resp_time_value=profile.resp_time_value,
            )
        if is_switch_itself and profile.enhanced_port_0:
            put(self.info, port_state=PortState.INIT, port_physical_state=PortPhysicalState.LINK_UP)

    # ---- what the hardware of the link can do ------------------------------------------------

    def set_rate(self, rate: LinkRate) -> None:
        """Set the fastest rate that the port can do; all of it and less is enabled.

        Until a link trains, the slowest is active; port 0, which has none, has all lanes.
        """
        self.rate = rate
        can = LinkSettings.up_to(rate)
        self._put_settings("supported", can)
        self._put_settings("enabled", can)
        width = can.width & -can.width if self.number else WIDTHS[rate.lanes]
        self.set_active(LinkSettings(width, 1))

    def _put_settings(self, which: str, settings: LinkSettings) -> None:
        """``which`` is "supported", "enabled" or "active"."""
        values = {
            f"link_width_{which}": settings.width,
            f"link_speed_{which}": settings.base,
            f"link_speed_ext_{which}": settings.extended,
            f"link_speed_ext_{which}2": settings.extended2,
        }
        PortInfo.put(self.info, 0, **values)
        if self.node.profile.fdr10:
            at = {"supported": 7, "enabled": 11, "active": 15}[which]
            self.extended_info[at] = settings.fdr10

    def set_active(self, settings: LinkSettings) -> None:
        """Show a width and a speed as those of the link."""
        self._put_settings("active", settings)
        rate = settings.rate
        self.link_rate_bps = 0.0 if rate is None else rate.data_bps

    def settings(self, which: str) -> LinkSettings:
        """Return the "supported", "enabled" or "active" widths and speeds."""
        get = PortInfo.get
        extended = int(get(self.info, f"link_speed_ext_{which}"))
        if extended == 30:  # only of "enabled": none
            extended = 0
        at = {"supported": 7, "enabled": 11, "active": 15}[which]
        return LinkSettings(
            int(get(self.info, f"link_width_{which}")),
            int(get(self.info, f"link_speed_{which}")),
            extended,
            int(get(self.info, f"link_speed_ext_{which}2")),
            self.extended_info[at],
        )

    @property
    def is_throttled(self) -> bool:
        """Whether its receiver takes less than the link brings, so that the port waits."""
        return 0 < self.throttle < self.link_rate_bps

    @property
    def data_rate(self) -> float:
        """The bits of packets in a second to which the port's data are held; 0: to no rate.

        A link of ``NOT_HELD`` or more is as fast as copies of memory, and is held only by its
        ``throttle``.
        """
        rate = self.link_rate_bps
        if self.throttle:
            return min(self.throttle, rate)
        return rate if rate < NOT_HELD else 0.0

    # ---- state ---------------------------------------------------------------------------------

    @property
    def state(self) -> int:
        """PortState, as a number."""
        return self.info[STATE] & 15

    @property
    def physical_state(self) -> int:
        """PortPhysicalState, as a number."""
        return self.info[PHYSICAL] >> 4

    def put_state(self, state: int, physical: int | None = None) -> None:
        """Write PortState and, if it is given, PortPhysicalState."""
        self.info[STATE] = self.info[STATE] & 0xF0 | state
        if physical is not None:
            self.info[PHYSICAL] = self.info[PHYSICAL] & 0x0F | physical << 4

    @property
    def is_up(self) -> bool:
        """Whether SMPs pass the link: PortState is INIT or higher."""
        return self.info[STATE] & 15 >= PortState.INIT

    @property
    def end_port(self) -> NodePort:
        """The port whose LIDs and M_Key hold for this one: port 0 of a switch, else itself."""
        return self if self.is_end else self.node.ports[0]

    # ---- addresses -----------------------------------------------------------------------------

    @property
    def lid(self) -> int:
        """The first LID, or 0."""
        return self.info[16] << 8 | self.info[17]

    @property
    def lids(self) -> range:
        """All LIDs of an end port, 2 to the power of LMC; empty before it has one."""
        lid = self.lid
        return range(lid, lid + (1 << (self.info[34] & 7)) if lid else 0)

    @property
    def master_sm_lid(self) -> int:
        """Where traps go, or 0."""
        return self.info[18] << 8 | self.info[19]

    @property
    def guid(self) -> int:
        """The port's GUID; of an external port of a switch that of the switch."""
        return int.from_bytes(self.end_port.guids[:8], "big")

    def has_lid(self, lid: int) -> bool:
        """Whether it is one of the port's LIDs."""
        return lid in self.lids

    def find_p_key(self, p_key: int) -> int | None:
        """Return the index of a table entry that lets a packet with this P_Key in, or None.

        The lower 15 bits must agree, and one of the two must be a full member (IBA 10.9.3).
        """
        wanted, keys = p_key & 0x7FFF, self.p_keys
        if not wanted:
            return None
        for at in range(0, len(keys), 2):
            here = keys[at] << 8 | keys[at + 1]
            if here & 0x7FFF == wanted and (here | p_key) & 0x8000:
                return at >> 1
        return None

    def in_partition(self, p_key: int) -> bool:
        """Whether the table has this P_Key, as a full or a limited member.

        A port may send packets with such a P_Key, and a switch's port that enforces partitions
        passes them. Two limited members are for the end ports to refuse (``find_p_key``): the
        switch's port beside a limited member has the member's P_Keys.
        """
        wanted, keys = p_key & 0x7FFF, self.p_keys
        return wanted != 0 and any(
            (keys[at] << 8 | keys[at + 1]) & 0x7FFF == wanted for at in range(0, len(keys), 2)
        )

    # ---- tables of lanes -----------------------------------------------------------------------

    def lane_map(self) -> bytearray:
        """The tables SLtoVL by input port, 8 bytes each, which are made when first asked for."""
        if self.sl_to_vl is None:
            lanes = PortInfo.get(self.info, "vl_cap").lanes or 1
            one = bytes((2 * i % lanes) << 4 | (2 * i + 1) % lanes for i in range(8))
            inputs = 1 if self.node.profile.node_type != NodeType.SWITCH else len(self.node.ports)
            self.sl_to_vl = bytearray(one * inputs)
        return self.sl_to_vl

    def lane_of(self, sl: int, input_port: int = 0) -> int:
        """Return the virtual lane of a service level; 15 drops the packet."""
        sl &= 15  # as a packet has it
        if self.sl_to_vl is None:
            return sl % (PortInfo.get(self.info, "vl_cap").lanes or 1)
        at = input_port * 8 if len(self.sl_to_vl) > 8 else 0
        return self.sl_to_vl[at + sl // 2] >> (0 if sl & 1 else 4) & 15

    def arbitration(self) -> bytearray:
        """The four blocks VLArbitrationTable, which are made when first asked for."""
        if self.vl_arbitration is None:
            self.vl_arbitration = bytearray(256)
            lanes = PortInfo.get(self.info, "vl_cap").lanes or 1
            for lane in range(min(lanes, self.node.profile.vl_arb_low_cap)):
                self.vl_arbitration[2 * lane : 2 * lane + 2] = bytes((lane, START_WEIGHT))
        return self.vl_arbitration

    def __repr__(self) -> str:
        state = PortState(self.state).name
        return f"<NodePort {self.node.name}[{self.number}] LID {self.lid} {state}>"


def check_port_count(ports: int) -> int:
    """Return a number of ports that NodeInfo can hold, 1 to 254. Raises MadError."""
    if not 1 <= ports <= 254:
        raise MadError(f"a node has 1 to 254 ports, and not {ports}")
    return ports
