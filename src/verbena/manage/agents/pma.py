# SPDX-License-Identifier: Apache-2.0
"""The performance management agent (PMA) of a node: counters of its ports (IBA 16.1).

``general_services.py`` calls ``answer_performance``. What is reported is a port's totals, from its
``PortTally`` and the node's ``counter_source``, less a base that a Set moves, and it saturates.
Each attribute has bases of its own, as in hardware: to clear PortCounters leaves
PortCountersExtended as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..attribute_ids import Method, PerformanceAttribute, StatusCode
from ..class_port_info import ClassPortInfo, PerformanceCapability, PerformanceCapability2
from ..mad import PerformanceMad
from ..pma_counters import (
    PortCounters,
    PortCountersExtended,
    PortRcvErrorDetails,
    PortSamplesControl,
    PortSamplesResult,
    PortXmitDiscardDetails,
    SelectedCounters,
)
from ..record import Record

if TYPE_CHECKING:
    from .node_agent import NodeAgent
    from .node_ports import NodePort

__all__ = ["COUNTER_ATTRIBUTES", "answer_performance"]

ALL_PORTS = 0xFF
CAPABILITIES = (
    PerformanceCapability.ALL_PORT_SELECT
    | PerformanceCapability.EXTENDED_WIDTH
    | PerformanceCapability.XMIT_WAIT
)
RESP_TIME_VALUE = 18
INVALID = int(StatusCode.INVALID_VALUE)
UNSUPPORTED = int(StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED)
DATA = PerformanceMad.DATA_AT

# Attributes of counters that a Set writes by selection.
COUNTER_ATTRIBUTES: dict[int, type[SelectedCounters]] = {
    record.ATTRIBUTE: record
    for record in (PortCounters, PortCountersExtended, PortRcvErrorDetails, PortXmitDiscardDetails)
}
# Without ADDITIONAL_EXTENDED_COUNTERS PortCountersExtended ends before symbol_errors.
EXTENDED = (
    *("xmit_data", "rcv_data", "xmit_packets", "rcv_packets"),
    *("unicast_xmit_packets", "unicast_rcv_packets"),
    *("multicast_xmit_packets", "multicast_rcv_packets"),
)
# Of each attribute its counters with their largest values.
COUNTERS: dict[type[SelectedCounters], dict[str, int]] = {
    record: {
        name: (1 << record.FIELDS[name].width) - 1
        for name in (EXTENDED if record is PortCountersExtended else record.SELECTS)
    }
    for record in COUNTER_ATTRIBUTES.values()
}
ALL_EXTENDED = {
    name: (1 << PortCountersExtended.FIELDS[name].width) - 1
    for name in PortCountersExtended.SELECTS
}
SELECTIONS = ("port_select", "counter_select", "counter_select2")


def answer_performance(node: NodeAgent, end: NodePort, mad: bytes) -> bytes | None:
    """Return the response to a Get or Set of the class; another method is refused."""
    request = PerformanceMad.unpack(mad)
    if request.class_version != 1:
        return request.response(status=StatusCode.BAD_VERSION).pack()
    if request.method not in (Method.GET, Method.SET):
        return request.response(status=StatusCode.METHOD_UNSUPPORTED).pack()
    done = _carried_out(node, request)
    if isinstance(done, int):
        return request.response(status=done).pack()
    return request.response(done).pack()


def _carried_out(node: NodeAgent, request: PerformanceMad) -> Record | int:
    is_set = request.method == Method.SET
    attribute = request.attribute_id
    if attribute == PerformanceAttribute.CLASS_PORT_INFO:
        return class_port_info(node)
    if attribute == PerformanceAttribute.PORT_SAMPLES_CONTROL:
        return samples_control(node, request.attribute(PortSamplesControl), is_set)
    if attribute == PerformanceAttribute.PORT_SAMPLES_RESULT:
        return UNSUPPORTED if is_set else PortSamplesResult()
    kind = COUNTER_ATTRIBUTES.get(attribute)
    if kind is None:
        return UNSUPPORTED
    asked = request.attribute(kind)
    ports = selected_ports(node, kind.get(asked.pack(), "port_select"))
    if not ports:
        return INVALID
    node.surroundings.read_counters()
    if is_set:
        for port in ports:
            _write(port, kind, asked)
    return _read(ports, kind, asked)


def class_port_info(node: NodeAgent) -> ClassPortInfo:
    """Return the class's ClassPortInfo. A Set changes nothing: the class sends no traps."""
    more = PerformanceCapability2(0)
    if node.profile.additional_extended_counters:
        more = PerformanceCapability2.ADDITIONAL_EXTENDED_COUNTERS
    return ClassPortInfo(
        capability_mask=int(CAPABILITIES),
        capability_mask2=int(more),
        resp_time_value=RESP_TIME_VALUE,
    )


def counters_of(node: NodeAgent, kind: type[SelectedCounters]) -> dict[str, int]:
    """Return the counters of an attribute that a node has, with their largest values."""
    if kind is PortCountersExtended and node.profile.additional_extended_counters:
        return ALL_EXTENDED
    return COUNTERS[kind]


def samples_control(node: NodeAgent, asked: PortSamplesControl, is_set: bool) -> Record | int:
    """Return what can be sampled: nothing. Every sampling is done and has counted nothing."""
    if not selected_ports(node, asked.port_select) and asked.port_select:
        return INVALID
    if is_set:
        return UNSUPPORTED
    return PortSamplesControl(port_select=asked.port_select, counter_width=4)


def selected_ports(node: NodeAgent, select: int) -> list[NodePort]:
    """Return the ports that PortSelect means: 255 are all but a switch's port 0."""
    if select == ALL_PORTS:
        return [port for port in node.ports.values() if port.number]
    port = node.ports.get(select)
    return [port] if port else []


def port_total(port: NodePort, name: str) -> int:
    """Return a total of a port since the start, from those who count."""
    source = port.node.counter_source
    other = source.port_totals(port.number).get(name, 0) if source else 0
    return port.tally[name] + other


def _shown(port: NodePort, kind: type[SelectedCounters]) -> dict[str, int]:
    """The counters that are not 0: totals less their bases, and at most their largest values."""
    node, number, attribute = port.node, port.number, kind.ATTRIBUTE
    source, bases = node.counter_source, node.counter_bases
    if not (source or bases or port.tally):
        return {}
    values = {}
    for name, most in counters_of(node, kind).items():
        total = port_total(port, name) if source else port.tally[name]
        if bases:
            total -= bases.get((number, attribute, name), 0)
        if total > 0:
            values[name] = min(total, most)
    return values


def _write(port: NodePort, kind: type[SelectedCounters], asked: SelectedCounters) -> None:
    values = asked.values()
    for name in counters_of(port.node, kind):
        select, bit = kind.SELECTS[name]
        if values[select] & bit:
            key = port.number, kind.ATTRIBUTE, name
            port.node.counter_bases[key] = port_total(port, name) - values[name]


def _read(ports: list[NodePort], kind: type[SelectedCounters], asked: SelectedCounters) -> Record:
    """Return the counters of a port, or sums of several, with the request's selections."""
    values: dict[str, int] = {}
    most = counters_of(ports[0].node, kind)
    for port in ports:
        for name, value in _shown(port, kind).items():
            values[name] = min(values.get(name, 0) + value, most[name])
    for name in SELECTIONS:
        if name in kind.FIELDS:
            values[name] = getattr(asked, name)
    return kind(**values)
