# SPDX-License-Identifier: Apache-2.0
"""Ports against a model of Linux's rules: random identifiers bind, listen, set options, and go.

The model is a list of what is bound, and asks each pair of identifiers; the code has tables. Both
have to refuse with the same errno. What the model says is from cma.c of Linux 6.1.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.manage.cm.world import FakeHost
from verbena.manage.cm import CmAddress, CmDevice, CmError, CmFamily, CmPort, IdState, RdmaCm
from verbena.manage.cm.bindings import BindingTable
from verbena.manage.cm.refusals import CmRefusal
from verbena.manage.codes import gid_of_address
from verbena.manage.ip_cm import PortSpace

LOCAL = ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
TEXTS = [*LOCAL, "0.0.0.0", "127.0.0.1", "::", "::1", "198.51.100.9"]
PORTS = [0, 7001, 7002, 80]
EPHEMERAL = (50000, 50003)


@dataclass
class Expected:
    """What the model knows of an identifier."""

    number: int
    space: int
    text: str | None = None
    port: int = 0
    reuses: bool = False
    af_only: bool | None = None  # as set
    listens: bool = False

    @property
    def is_any(self) -> bool:
        return self.text in ("0.0.0.0", "127.0.0.1", "::", "::1")

    @property
    def family(self) -> int:
        return 6 if ":" in (self.text or "") else 4

    @property
    def is_af_only(self) -> bool:
        return self.family == 4 if self.af_only is None else self.af_only


def new_rdma(seed: int = 1) -> RdmaCm:
    device = CmDevice(1, (CmPort(tuple(gid_of_address(text) for text in LOCAL)),))
    host = FakeHost(*LOCAL)
    return RdmaCm(device, host, random.Random(seed).getrandbits, ports=EPHEMERAL)


class Ports(RuleBasedStateMachine):
    """One program that makes calls; the model says what each returns."""

    def __init__(self) -> None:
        super().__init__()
        self.rdma = new_rdma()
        self.channel = self.rdma.open_channel()
        self.known: list[Expected] = []
        self.last = 0  # the ephemeral port given last

    def refused(self, call: Any) -> int:
        """The errno of a call; 0 if it succeeds."""
        try:
            call()
        except CmError as error:
            return error.errno or 0
        return 0

    def conflict(self, own: Expected, other: Expected, reuses: bool) -> int:
        """The errno with which one identifier is in another's way."""
        if reuses and other.reuses and not other.listens:
            return 0
        if own.is_af_only and other.is_af_only and own.family != other.family:
            return 0
        if own.is_any or other.is_any:
            return errno.EADDRNOTAVAIL
        return errno.EADDRINUSE if own.text == other.text else 0

    def others(self, own: Expected, port: int) -> list[Expected]:
        """Who has the port, the latest first."""
        return [
            each
            for each in reversed(self.known)
            if each is not own and each.text and (each.space, each.port) == (own.space, port)
        ]

    def bind_errno(self, own: Expected, text: str, port: int) -> int:
        if own.text is not None:
            return errno.EINVAL
        tried = Expected(own.number, own.space, text, port, own.reuses, own.af_only)
        if not tried.is_any and text not in LOCAL:
            return errno.EADDRNOTAVAIL
        if port:
            if port < 1024:
                return errno.EACCES
            found = (self.conflict(tried, each, own.reuses) for each in self.others(own, port))
            return next((code for code in found if code), 0)
        for candidate in range(EPHEMERAL[0], EPHEMERAL[1] + 1):
            apart = all(
                not tried.is_any and not each.is_any and each.text != text
                for each in self.others(own, candidate)
            )
            if candidate != self.last and apart:
                return 0
        return errno.EADDRNOTAVAIL

    @rule(space=strategies.sampled_from([PortSpace.TCP, PortSpace.UDP]))
    def create(self, space: int) -> None:
        self.known.append(Expected(self.rdma.create_id(self.channel, space), space))

    @precondition(lambda self: self.known)
    @rule(which=strategies.integers(0, 99), reuses=strategies.booleans())
    def reuse(self, which: int, reuses: bool) -> None:
        own = self.known[which % len(self.known)]
        value = int(reuses).to_bytes(4, "little")
        late = own.text is not None and (not reuses or own.listens)
        code = self.refused(lambda: self.rdma.set_option(own.number, 0, 1, value))
        assert code == (errno.EINVAL if late else 0)
        if not late:
            own.reuses = reuses

    @precondition(lambda self: self.known)
    @rule(which=strategies.integers(0, 99), only=strategies.booleans())
    def family_only(self, which: int, only: bool) -> None:
        own = self.known[which % len(self.known)]
        value = int(only).to_bytes(4, "little")
        code = self.refused(lambda: self.rdma.set_option(own.number, 0, 2, value))
        assert code == (errno.EINVAL if own.listens else 0)
        if not code:
            own.af_only = only

    @precondition(lambda self: self.known)
    @rule(
        which=strategies.integers(0, 99),
        text=strategies.sampled_from(TEXTS),
        port=strategies.sampled_from(PORTS),
    )
    def bind(self, which: int, text: str, port: int) -> None:
        own = self.known[which % len(self.known)]
        expected = self.bind_errno(own, text, port)
        address = CmAddress.ip(text, port)
        assert self.refused(lambda: self.rdma.bind(own.number, address)) == expected
        if not expected:
            self.took(own, text)

    def took(self, own: Expected, text: str) -> None:
        made = self.rdma.id(own.number)
        own.text, own.port = text, made.source.port
        self.known.remove(own)
        self.known.append(own)  # the latest to bind
        if EPHEMERAL[0] <= own.port <= EPHEMERAL[1]:
            self.last = own.port

    @precondition(lambda self: self.known)
    @rule(which=strategies.integers(0, 99))
    def listen(self, which: int) -> None:
        own = self.known[which % len(self.known)]
        if own.text is None:
            expected = self.bind_errno(own, "0.0.0.0", 0)
            assert self.refused(lambda: self.rdma.listen(own.number)) == expected
            if expected:
                return
            self.took(own, "0.0.0.0")
            own.listens = True
            own.reuses = False
            return
        expected = errno.EINVAL if own.listens else 0
        if not expected and own.reuses:
            found = (self.conflict(own, each, False) for each in self.others(own, own.port))
            expected = next((code for code in found if code), 0)
        assert self.refused(lambda: self.rdma.listen(own.number)) == expected
        if not expected:
            own.listens, own.reuses = True, False

    @precondition(lambda self: self.known)
    @rule(which=strategies.integers(0, 99))
    def destroy(self, which: int) -> None:
        own = self.known.pop(which % len(self.known))
        assert self.rdma.destroy_id(own.number) == 0

    @invariant()
    def same_as_the_model(self) -> None:
        for each in self.known:
            made = self.rdma.id(each.number)
            state = IdState.IDLE if each.text is None else IdState.ADDR_BOUND
            assert made.state is (IdState.LISTEN if each.listens else state)
            if each.text is not None:
                assert (str(made.source.port), made.source.host) == (
                    str(each.port),
                    CmAddress.ip(each.text).host,
                )


TestPorts = Ports.TestCase
TestPorts.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


class TestOne:
    def test_addresses_that_are_refused(self) -> None:
        rdma = new_rdma()
        channel = rdma.open_channel()
        number = rdma.create_id(channel, PortSpace.TCP)
        assert isinstance(rdma.host, FakeHost)
        rdma.host.without_device.add(CmAddress.ip("198.51.100.1").host)
        for address, refusal in (
            (CmAddress.ip("198.51.100.1"), CmRefusal.NO_DEVICE),
            (CmAddress.ip("198.51.100.2"), CmRefusal.NOT_LOCAL),
            (CmAddress.ip("fe80::1"), CmRefusal.NO_SCOPE),
            (CmAddress(CmFamily.UNSPECIFIED, bytes(4)), CmRefusal.FAMILY),
        ):
            with pytest.raises(CmError) as caught:
                rdma.bind(number, address)
            assert caught.value.refusal is refusal
            assert rdma.id(number).state is IdState.IDLE

    def test_link_local_with_a_scope(self) -> None:
        rdma = new_rdma()
        assert isinstance(rdma.host, FakeHost)
        rdma.host.addresses.add(CmAddress.ip("fe80::1").host)
        number = rdma.create_id(rdma.open_channel(), PortSpace.TCP)
        rdma.bind(number, CmAddress.ip("fe80::1%3", 7001))
        assert str(rdma.id(number).source) == "[fe80::1%3]:7001"

    def test_privileged(self) -> None:
        rdma = new_rdma()
        assert isinstance(rdma.host, FakeHost)
        rdma.host.privileged = True
        number = rdma.create_id(rdma.open_channel(), PortSpace.TCP)
        rdma.bind(number, CmAddress.ip("192.0.2.1", 80))

    def test_spaces_are_apart(self) -> None:
        rdma = new_rdma()
        for space in (PortSpace.TCP, PortSpace.UDP, PortSpace.IPOIB, PortSpace.IB):
            rdma.bind(rdma.create_id(rdma.open_channel(), space), CmAddress.ip("0.0.0.0", 7001))

    def test_one_port_to_two_peers(self) -> None:
        """An ephemeral port in use is shared if the peer differs."""

        class Holder:
            reuse_address = af_only = is_listening = False

            def __init__(self, peer: str) -> None:
                self.source = CmAddress.ip("192.0.2.1")
                self.destination: CmAddress | None = CmAddress.ip(peer, 7174)

        table = BindingTable(random.Random(1).getrandbits, 50000, 50001)
        ports = []
        for peer in ("192.0.2.7", "192.0.2.8", "192.0.2.9"):
            holder = Holder(peer)
            ports.append(table.bind(holder, 1, lambda _: False))
            holder.source = holder.source.with_port(ports[-1])
        assert ports[0] == ports[2] != ports[1]
        with pytest.raises(CmError) as caught:
            table.bind(Holder("192.0.2.8"), 1, lambda _: False)
        assert caught.value.refusal is CmRefusal.NO_PORT_LEFT
