# SPDX-License-Identifier: Apache-2.0
"""All transfers of an agent by RMPP: each packet to its sender or receiver (IBA 13.6).

An agent that has RMPP gives each MAD of its classes to ``receive``, and sends what comes back. A
peer is whatever the caller tells peers by, as (LID, QP): a transfer is known by its peer,
TransactionID, class and method.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .attribute_ids import RESPONSE_BIT
from .errors import MadError
from .mad import MAD_BYTES, RmppMad
from .rmpp import RmppStatus, RmppType, class_header_bytes, control_packet, is_rmpp
from .rmpp_receiver import (
    LINGER,
    MOST_BYTES,
    TRANSFER_TIMEOUT,
    WINDOW,
    ReceiverState,
    RmppReceiver,
)
from .rmpp_sender import ACK_TIMEOUT, RETRIES, RmppSender, SenderState

__all__ = ["RmppOutcome", "RmppTransfers", "TransferKey"]

MOST_RECEIVERS = 1024


class TransferKey(NamedTuple):
    """What tells one message from another; ``method`` is that of its DATA packets."""

    peer: Hashable
    transaction_id: int
    mgmt_class: int
    class_version: int
    method: int


@dataclass
class RmppOutcome:
    """What a packet or the time has led to.

    ``packets`` are to be sent, each to its peer. ``received`` are messages that are complete, and
    MADs that are not of RMPP. ``sent`` and ``failed`` are transfers that have ended, the latter in
    either direction.
    """

    packets: list[tuple[Hashable, bytes]] = field(default_factory=list)
    received: list[tuple[Hashable, bytes]] = field(default_factory=list)
    sent: list[TransferKey] = field(default_factory=list)
    failed: list[tuple[TransferKey, RmppStatus]] = field(default_factory=list)

    def add_packets(self, peer: Hashable, packets: list[bytes]) -> None:
        """Add packets for a peer."""
        self.packets += [(peer, packet) for packet in packets]


class RmppTransfers:
    """The transfers of an agent. Times are seconds of any clock that does not go back."""

    def __init__(
        self,
        *,
        window: int = WINDOW,
        ack_timeout: float = ACK_TIMEOUT,
        retries: int = RETRIES,
        transfer_timeout: float = TRANSFER_TIMEOUT,
        linger: float = LINGER,
        most_bytes: int = MOST_BYTES,
        most_receivers: int = MOST_RECEIVERS,
    ) -> None:
        self._window = window
        self._ack_timeout = ack_timeout
        self._retries = retries
        self._transfer_timeout = transfer_timeout
        self._linger = linger
        self._most_bytes = most_bytes
        self._most_receivers = most_receivers
        self._senders: dict[TransferKey, RmppSender] = {}
        self._receivers: dict[TransferKey, RmppReceiver] = {}

    def send(
        self, peer: Hashable, message: bytes, now: float, *, turn_window: int = 0
    ) -> RmppOutcome:
        """Begin to send a message. Raises MadError for one that cannot be sent or is under way.

        The answer to a double-sided request has the window that the requester gave.
        """
        key = _key(peer, message)
        if key in self._senders:
            raise MadError(f"transaction {key.transaction_id:#x} is under way to {peer}")
        asked = self._receivers.get(key._replace(method=key.method ^ RESPONSE_BIT))
        sender = RmppSender(
            message,
            window=asked.turn_window if asked and key.method & RESPONSE_BIT else 1,
            turn_window=turn_window,
            ack_timeout=self._ack_timeout,
            retries=self._retries,
        )
        self._senders[key] = sender
        outcome = RmppOutcome()
        outcome.add_packets(peer, sender.start(now))
        return outcome

    def receive(self, peer: Hashable, packet: bytes, now: float) -> RmppOutcome:
        """Take a MAD of a peer. Raises MadError if it has not 256 bytes."""
        if len(packet) != MAD_BYTES:
            raise MadError(f"a MAD has {MAD_BYTES} bytes, and this one {len(packet)}")
        outcome = RmppOutcome()
        if not is_rmpp(packet):
            outcome.received.append((peer, packet))
            return outcome
        key = _key(peer, packet)
        answered = key._replace(method=key.method ^ RESPONSE_BIT)
        kind = RmppMad.get(packet, "rmpp_type")
        if kind != RmppType.DATA and answered in self._senders:
            sender = self._senders[answered]
            was = sender.state
            outcome.add_packets(peer, sender.receive(packet, now))
            self._look_at_sender(answered, was, outcome)
        elif kind == RmppType.DATA or key in self._receivers:
            self._to_receiver(key, packet, now, outcome)
        return outcome

    def timer(self) -> float | None:
        """Return when ``expire`` is to be called; None: not at all."""
        machines: list[RmppSender | RmppReceiver] = [
            *self._senders.values(),
            *self._receivers.values(),
        ]
        return min((due for each in machines if (due := each.timer()) is not None), default=None)

    def expire(self, now: float) -> RmppOutcome:
        """Return what the time has led to."""
        outcome = RmppOutcome()
        for key, sender in list(self._senders.items()):
            sending = sender.state
            outcome.add_packets(key.peer, sender.expire(now))
            self._look_at_sender(key, sending, outcome)
        for key, receiver in list(self._receivers.items()):
            receiving = receiver.state
            outcome.add_packets(key.peer, receiver.expire(now))
            self._look_at_receiver(key, receiving, outcome)
        return outcome

    def cancel(self, key: TransferKey) -> RmppOutcome:
        """Give up sending a message; nothing if it is not under way."""
        outcome = RmppOutcome()
        if sender := self._senders.get(key):
            was = sender.state
            outcome.add_packets(key.peer, sender.cancel())
            self._look_at_sender(key, was, outcome)
        return outcome

    def keys(self) -> Iterator[TransferKey]:
        """The messages that are being sent."""
        return iter(tuple(self._senders))

    def _to_receiver(
        self, key: TransferKey, packet: bytes, now: float, outcome: RmppOutcome
    ) -> None:
        receiver = self._receivers.get(key)
        if receiver is None:
            if RmppMad.get(packet, "segment_number") != 1:
                return  # of a transfer that is forgotten, or whose first segment is still to come
            if len(self._receivers) >= self._most_receivers:
                status = RmppStatus.RESOURCES_EXHAUSTED
                outcome.add_packets(
                    key.peer, [control_packet(packet, RmppType.STOP, status=status)]
                )
                return
            receiver = self._receivers[key] = RmppReceiver(
                now,
                window=self._window,
                transfer_timeout=self._transfer_timeout,
                linger=self._linger,
                most_bytes=self._most_bytes,
            )
        was = receiver.state
        outcome.add_packets(key.peer, receiver.receive(packet, now))
        self._look_at_receiver(key, was, outcome)

    def _look_at_sender(self, key: TransferKey, was: SenderState, outcome: RmppOutcome) -> None:
        sender = self._senders[key]
        if sender.state is not was and sender.state is SenderState.DONE:
            outcome.sent.append(key)
        elif sender.state is not was:
            outcome.failed.append((key, sender.status))
        if sender.timer() is None:
            del self._senders[key]

    def _look_at_receiver(self, key: TransferKey, was: ReceiverState, outcome: RmppOutcome) -> None:
        receiver = self._receivers[key]
        if receiver.state is ReceiverState.FORGOTTEN:
            del self._receivers[key]
        elif receiver.state is not was and receiver.state is ReceiverState.COMPLETE:
            outcome.received.append((key.peer, receiver.message))
            receiver.message = b""
        elif receiver.state is not was:
            outcome.failed.append((key, receiver.status))


def _key(peer: Hashable, message: bytes) -> TransferKey:
    if len(message) < 4 or len(message) < class_header_bytes(message[1]):
        raise MadError("the message is shorter than the headers of its class")
    transaction = int.from_bytes(message[8:16], "big")
    return TransferKey(peer, transaction, message[1], message[2], message[3])
