# SPDX-License-Identifier: Apache-2.0
"""A subnet manager (IBA chapter 14) at a port: it takes packets and times, and returns packets.

Whoever has the port calls ``receive`` for each management packet that no agent of the port answers,
``tick`` when ``next_deadline`` has come, and sends what both return. ``sm_info`` and
``set_sm_info`` are for the port's agent, which answers SMInfo. Times are in seconds from any start
and must not go back; a manager has no clock, no thread and no socket.

    manager = SubnetManager(guid=port_guid)
    packets = manager.start(now)

``manager.subnet`` and ``manager.routes`` are those of the last heavy sweep that was completed. In
all states but MASTER the manager only reads. Its states are SMInfo's: see ``election.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from ..agents.packets import MadPacket
from ..attribute_ids import Method, MgmtClass, SmpAttribute
from ..codes import SmState
from ..errors import MadError
from ..mad import MAD_BYTES, LidRoutedSmp, MadHeader, Smp, parse_mad
from ..notices import LocalChangesTrap, Notice, TrapNumber, trap_notice
from ..smp_attributes import PortInfo, SmInfo
from .discovered import DiscoveredSubnet, SubnetPort
from .election import CONTROLS, SmControl, Verdict, decide, sm_rank
from .light_sweep import LightSweep
from .multicast_routing import MulticastRoutes
from .settings import SmSettings
from .smp_window import SmpRequest, SmpRoute, SmpWindow
from .sweep import GroupSource, Sweep, SweepPhase, send_multicast
from .sweep_routing import SubnetRoutes

__all__ = ["SubnetManager"]

_RESWEEP = {
    *(TrapNumber.LINK_STATE, TrapNumber.LOCAL_CHANGES, TrapNumber.SYSTEM_IMAGE_GUID),
}
_DIRECTED = int(MgmtClass.SUBN_DIRECTED_ROUTE)
_GET_RESP = int(Method.GET_RESP)


class SubnetManager:
    """A subnet manager. ``guid`` is that of the port where it runs, and ``port`` its number.

    ``state`` is SMInfo's. ``sweeps`` counts heavy sweeps that were completed, and ``mads_sent`` the
    MADs of all. ``problems`` is what the last sweep could not do, and ``other_managers`` whom it
    found. ``on_sweep`` is called after a heavy sweep of the master, with the subnet before,
    ``on_notice`` for each trap, and ``on_master`` when it becomes the master.
    """

    def __init__(self, guid: int, settings: SmSettings | None = None, port: int = 1) -> None:
        self.settings = settings or SmSettings()
        self.guid, self.port = guid, port
        self.state = SmState.NOT_ACTIVE
        self.subnet = DiscoveredSubnet()
        self.routes: SubnetRoutes | None = None
        self.known_lids = dict(self.settings.guid_to_lid)
        self.problems: list[str] = []
        self.sweeps = self.light_sweeps = self.act_count = 0
        self.groups: GroupSource | None = None
        self.on_sweep: Callable[[DiscoveredSubnet], None] = _ignore
        self.on_notice: Callable[[Notice, MadPacket], None] = _ignore_notice
        self.on_master: Callable[[], None] = _ignore_master
        self.other_managers: list[SmInfo] = []
        self._window = SmpWindow(
            self.settings.most_smps,
            self.settings.timeout,
            self.settings.retries,
            self.settings.m_key,
            self._failed,
        )
        self._sweep: Sweep | None = None
        self._light: LightSweep | None = None
        self._asking = False  # something else is asked: a poll, a handover, multicast tables
        self._now = 0.0
        self._at: float | None = None  # when the next light sweep, poll or retry begins
        self._heavy = self._forget = self._multicast_changed = False
        self._first = True  # no sweep was completed since it became the master
        self._bad_sweeps = 0
        self._others: list[SubnetPort] = []
        self._watched: SubnetPort | None = None
        self._traps = 0
        self._silent_polls = 0
        self._handing_over_until: float | None = None
        self._handed_over_to: SubnetPort | None = None
        self._acknowledge: int | None = None
        self._out: list[MadPacket] = []

    # ---- what the owner of the port calls ------------------------------------------------------

    def start(self, now: float) -> list[MadPacket]:
        """Begin: discover the subnet, and become its master or stand by."""
        self._now = now
        self._discover()
        return self._pumped()

    def receive(self, packet: MadPacket, now: float) -> list[MadPacket]:
        """Take a packet and return those to send. A packet that is not for a manager is ignored."""
        self._now = now
        mad = packet.mad
        if len(mad) == MAD_BYTES and mad[1] == _DIRECTED and mad[3] == _GET_RESP:
            # Nothing goes on before all responses have come, or do not matter any more.
            if self._window.receive(mad) and (self._window.is_idle or self._light_is_over):
                self._progress()
        else:
            self._request(packet)
            if self._light_is_over:
                self._progress()
            elif self._is_free:
                self._begin_next()
        return self._pumped()

    def tick(self, now: float) -> list[MadPacket]:
        """Do what is due, and return the packets to send."""
        self._now = now
        self._window.tick(now)
        if self._at is not None and self._at <= now and self._is_free:
            self._at = None
            self._due()
        self._progress()
        return self._pumped()

    def next_deadline(self) -> float | None:
        """Return when ``tick`` is due, or None if nothing is planned."""
        deadline = self._window.next_deadline()
        if not self._is_free:
            return deadline
        if self._is_due:
            return self._now
        if deadline is None or (self._at is not None and self._at < deadline):
            return self._at
        return deadline

    def request_sweep(self, *, forget: bool = False) -> None:
        """Ask for a heavy sweep, which begins with the next ``tick``.

        With ``forget`` everything is set again, whatever was set before.
        """
        self._heavy = True
        self._forget |= forget

    def multicast_changed(self) -> None:
        """Say that memberships have changed: the next ``tick`` brings the switches up to date."""
        self._multicast_changed = True

    @property
    def is_sweeping(self) -> bool:
        """A heavy sweep is going on."""
        return self._sweep is not None

    @property
    def phase(self) -> SweepPhase | None:
        """What the heavy sweep is doing that is going on; None: there is none."""
        return None if self._sweep is None else self._sweep.phase

    @property
    def mads_sent(self) -> int:
        """Directed-route MADs that were sent, retries included."""
        return self._window.sent

    @property
    def mads_repeated(self) -> int:
        """Directed-route MADs that were sent again, since no response came."""
        return self._window.retried

    @property
    def lid(self) -> int:
        """The first LID of the manager's port; 0 before it has one."""
        own = self.subnet.own_port
        return own.lid if own is not None else 0

    # ---- SMInfo --------------------------------------------------------------------------------

    def sm_info(self) -> SmInfo:
        """Return the attribute for a Get. OpenSM ignores managers that do not show its SM_Key."""
        return SmInfo(
            guid=self.guid,
            sm_key=self.settings.sm_key,
            act_count=self.act_count & 0xFFFFFFFF,
            priority=self.settings.priority,
            sm_state=self.state,
        )

    def set_sm_info(self, control: int, info: SmInfo) -> SmInfo | None:
        """Carry out a Set of SMInfo by another manager; None if the state does not allow it."""
        try:
            key = (self.state, SmControl(control))
        except ValueError:
            return None
        state = CONTROLS.get(key)
        if state is None:
            return None
        if key == (SmState.STANDBY, SmControl.ACKNOWLEDGE):
            return self.sm_info()
        if key[1] is SmControl.ACKNOWLEDGE:
            if self._handing_over_until is None:
                return None
            self._stand_by(info.guid)
        elif key[1] is SmControl.HANDOVER:
            self._acknowledge = info.guid
            if self.state != SmState.MASTER:
                self._become_master()
            self._forget = self._heavy = True
        elif state == SmState.DISCOVERING:
            self._at, self.state = self._now, state
        elif state == SmState.STANDBY:
            self._stand_by(info.guid)
        else:
            self._at, self.state = None, state
        return self.sm_info()

    # ---- requests of others --------------------------------------------------------------------

    def _request(self, packet: MadPacket) -> None:
        try:
            mad = parse_mad(packet.mad)
        except MadError:
            return
        if not isinstance(mad, Smp):
            return
        if mad.method == Method.TRAP and isinstance(mad, LidRoutedSmp):
            self._trap(mad, packet)
        elif mad.attribute_id == SmpAttribute.SM_INFO and mad.method in (Method.GET, Method.SET):
            self._answer_sm_info(mad, packet)

    def _answer_sm_info(self, mad: Smp, packet: MadPacket) -> None:
        answer: SmInfo | None = self.sm_info()
        if mad.method == Method.SET:
            answer = self.set_sm_info(mad.attribute_modifier, mad.attribute(SmInfo))
        made: MadHeader = mad.response(answer) if answer else mad.response(status=0x1C)
        self._out.append(packet.answer(made.pack()))

    def _trap(self, mad: LidRoutedSmp, packet: MadPacket) -> None:
        if self.state != SmState.MASTER:
            return
        repress = packet.answer(mad.replace(method=Method.TRAP_REPRESS).pack())
        self._out.append(repress._replace(port=self.port))
        notice = mad.attribute(Notice)
        if notice.is_generic and notice.trap_number in _RESWEEP:
            self._heavy = True
        self.on_notice(notice, packet)

    # ---- what goes on --------------------------------------------------------------------------

    @property
    def _is_free(self) -> bool:
        return self._sweep is None and self._light is None and not self._asking

    @property
    def _may_sweep(self) -> bool:
        return self.state == SmState.MASTER and self._handing_over_until is None

    @property
    def _light_is_over(self) -> bool:
        """There is a light sweep, and what it waits for does not matter: a heavy one follows."""
        return self._light is not None and (self._heavy or bool(self._light.changes))

    @property
    def _is_due(self) -> bool:
        """``_begin_next`` has something to begin."""
        wanted = self._heavy or self._multicast_changed
        return self._acknowledge is not None or (wanted and self._may_sweep)

    def _pumped(self) -> list[MadPacket]:
        port = self.port
        sent = [MadPacket(mad, port) for mad in self._window.pump(self._now)]
        if not self._out:
            return sent
        first, self._out = self._out, []
        return first + sent

    def _failed(self, request: SmpRequest, reason: str) -> None:
        if self._sweep is not None:
            self._sweep.failed(request, reason)
        elif self._light is not None:
            self._light.failed(request, reason)
        elif self._asking:
            self._ask_failed(request, reason)

    def _progress(self) -> None:
        """Go on with what has nothing to wait for any more, and begin what is due."""
        sweep = self._sweep
        if sweep is not None:
            sweep.step()
            if sweep.phase is SweepPhase.DECIDE:
                self._decide(sweep)
            if self._sweep is sweep and sweep.is_done:
                self._sweep = None
                self._swept(sweep)
        elif self._light is not None and (self._window.is_idle or self._light_is_over):
            self._window.clear()
            light, self._light = self._light, None
            self._swept_lightly(light)
        elif self._asking and self._window.is_idle:
            self._asking = False
        if self._is_free:
            self._begin_next()

    def _begin_next(self) -> None:
        if self._acknowledge is not None:
            self._send_acknowledge(self._acknowledge)
            self._acknowledge = None
        elif self._may_sweep and self._heavy:
            self._discover()
        elif self._may_sweep and self._multicast_changed:
            self._multicast_changed = False
            self._set_multicast()
        if self._asking and self._window.is_idle:
            self._asking = False  # there was nothing to ask

    def _due(self) -> None:
        self.act_count += 1
        if self.state == SmState.STANDBY:
            self._poll()
        elif self.state == SmState.DISCOVERING:
            self._discover()
        elif self.state == SmState.MASTER and self._handing_over_until is not None:
            # The other manager has not acknowledged.
            self._handing_over_until = None
            self._heavy = True
        elif self.state == SmState.MASTER and self._bad_sweeps:
            self._heavy = True
        elif self.state == SmState.MASTER:
            self._begin_light(links=False)

    def _begin_light(self, links: bool) -> None:
        self._light = LightSweep(self._window, self.subnet, self._others, links)
        if self._light.is_done:
            self._progress()

    def _discover(self) -> None:
        """Begin a heavy sweep. Who is not the master begins with the states of the others."""
        if self.state != SmState.MASTER:
            self.state = SmState.DISCOVERING
            self._first = True
        self._heavy = False
        self._at = None
        forget = self._forget or self._first
        self._forget = False
        self._sweep = Sweep(
            self._window,
            self.settings,
            self.known_lids,
            None if forget else self.subnet,
            groups=self.groups,
            reregister=self._first,
        )
        self._sweep.start()

    def _decide(self, sweep: Sweep) -> None:
        """Lead, follow or hand over: the sweep is at DECIDE."""
        by_guid = {info.guid: port for port, info in sweep.managers if info.guid != self.guid}
        others = [info for _, info in sweep.managers if info.guid != self.guid]
        decision = decide(self.sm_info(), others)
        self._others, self.other_managers = list(by_guid.values()), others
        if decision.verdict is Verdict.LEAD:
            if self.state != SmState.MASTER:
                self._become_master()
            sweep.go_on()
            return
        assert decision.about is not None
        self.subnet = sweep.subnet
        self._sweep = None
        self._window.clear()
        port = by_guid[decision.about.guid]
        if decision.verdict is Verdict.HAND_OVER:
            self._hand_over(port)
        else:
            self._stand_by(decision.about.guid, port)

    def _become_master(self) -> None:
        self.state = SmState.MASTER
        self._first = True
        self._at = None
        self._handing_over_until = None
        self.on_master()
        if self._sweep is None:
            self._stop_asking()
            self._heavy = True

    def _stand_by(self, guid: int, port: SubnetPort | None = None) -> None:
        """Become a standby that watches the manager with this GUID."""
        self.state = SmState.STANDBY
        self._handing_over_until = None
        self._heavy = self._forget = self._multicast_changed = False
        self._stop_asking()
        if port is None:
            port = next((each for each in self._others if each.guid == guid), None)
        self._watched = port
        self._silent_polls = 0
        self._at = self._now + self.settings.polling_timeout

    def _stop_asking(self) -> None:
        self._sweep = self._light = None
        self._asking = False
        self._window.clear()

    # ---- ends of sweeps ------------------------------------------------------------------------

    def _swept(self, sweep: Sweep) -> None:
        """A heavy sweep has ended; the state is MASTER, or there is no subnet at all."""
        before = self.subnet
        self.act_count += 1
        self.problems = sweep.errors + sweep.subnet.notes
        if self.state != SmState.MASTER or sweep.subnet.own_port is None:
            self._bad_sweeps += 1
            self._at = self._now + self.settings.retry_interval
            return
        self.subnet, self.routes, self.known_lids = sweep.subnet, sweep.routes, sweep.known
        self.sweeps += 1
        first, self._first = self._first, bool(sweep.errors) and self._first
        if sweep.errors or sweep.subnet.failed:
            wait = self.settings.retry_interval * 2 ** min(self._bad_sweeps, 8)
            self._bad_sweeps += 1
            self._at = self._now + min(wait, self.settings.sweep_interval)
        else:
            self._bad_sweeps = 0
            self._at = self._now + self.settings.sweep_interval
        self.on_sweep(before)
        if first and not self._heavy:
            self._begin_light(links=True)

    def _swept_lightly(self, light: LightSweep) -> None:
        self.light_sweeps += 1
        if light.changes:
            self._heavy = True
        others = [info for _, info in light.managers if info.guid != self.guid]
        if decide(self.sm_info(), others).verdict is not Verdict.LEAD:
            self._heavy = True
        if self._at is None:
            self._at = self._now + self.settings.sweep_interval

    # ---- other managers ------------------------------------------------------------------------

    def _poll(self) -> None:
        if self._watched is None:
            self._rediscover()
            return
        self._asking = True
        self._window.get(self._watched.route, SmpAttribute.SM_INFO, 0, self._polled, once=True)
        self._at = self._now + self.settings.polling_timeout

    def _polled(self, request: SmpRequest, mad: bytes) -> None:
        info = SmInfo.unpack(mad, 64)
        if info.sm_state != SmState.MASTER:
            self._missed_poll()
            return
        self._silent_polls = 0
        if sm_rank(info) < sm_rank(self.sm_info()):
            # The master has not noticed this manager, or it would have handed over.
            self._window.get(SmpRoute(), SmpAttribute.PORT_INFO, self.port, self._tell_master)

    def _tell_master(self, request: SmpRequest, mad: bytes) -> None:
        """Send trap 144 to the master: the priority of the manager at this port has changed."""
        own = PortInfo.unpack(mad, 64)
        if not own.lid or not own.master_sm_lid:
            return
        changes = LocalChangesTrap(
            lid=own.lid,
            other_local_changes=True,
            capability_mask=own.capability_mask,
            sm_priority_changed=True,
        )
        notice = trap_notice(TrapNumber.LOCAL_CHANGES, changes, issuer_lid=own.lid)
        self._traps += 1
        trap = LidRoutedSmp(method=Method.TRAP, transaction_id=self._traps).with_attribute(notice)
        self._out.append(MadPacket(trap.pack(), self.port, own.master_sm_lid, own.lid))

    def _missed_poll(self) -> None:
        self._silent_polls += 1
        if self._silent_polls > self.settings.polling_retries:
            self._rediscover()

    def _rediscover(self) -> None:
        self.state = SmState.DISCOVERING
        self._silent_polls = 0
        self._at = self._now

    def _ask_failed(self, request: SmpRequest, reason: str) -> None:
        if self.state == SmState.STANDBY:
            self._missed_poll()
        elif self.state == SmState.MASTER:
            # A handover that was refused or lost, or a switch that does not take its tables.
            self._handing_over_until = None
            self._bad_sweeps += 1
            self._at = self._now + self.settings.retry_interval

    def _hand_over(self, port: SubnetPort) -> None:
        """Ask a manager that ranks higher to be the master.

        Its response says that it is; OpenSM sends no ACKNOWLEDGE.
        """
        self._asking = True
        self._handing_over_until = self._now + self.settings.polling_timeout
        self._at = self._handing_over_until
        self._handed_over_to = port
        self._set_sm_info(port.route, SmControl.HANDOVER, self._handed_over)

    def _handed_over(self, request: SmpRequest, mad: bytes) -> None:
        port = self._handed_over_to
        if port is not None and self._handing_over_until is not None:
            self._stand_by(port.guid, port)

    def _send_acknowledge(self, guid: int) -> None:
        """Tell the former master that its subnet was taken over, if it is known where it is."""
        port = next((each for each in self._others if each.guid == guid), None)
        port = port or self.subnet.by_port_guid().get(guid)
        if port is not None:
            self._asking = True
            self._set_sm_info(port.route, SmControl.ACKNOWLEDGE, _done)

    def _set_sm_info(
        self, route: SmpRoute, control: SmControl, done: Callable[[SmpRequest, bytes], None]
    ) -> None:
        data = self.sm_info().pack()
        self._window.set(route, SmpAttribute.SM_INFO, control, data, done)

    # ---- multicast -----------------------------------------------------------------------------

    def _set_multicast(self) -> None:
        if self.routes is None or self.groups is None:
            return
        self._asking = True
        tables = MulticastRoutes(self.routes).blocks(self.groups.members_by_mlid(self.subnet))
        send_multicast(self._window, self.subnet, tables)


def _done(request: SmpRequest, mad: bytes) -> None:
    """Nothing follows."""


def _ignore(before: DiscoveredSubnet) -> None:
    """Nothing follows."""


def _ignore_master() -> None:
    """Nothing follows."""


def _ignore_notice(notice: Notice, packet: MadPacket) -> None:
    """Nothing follows."""
