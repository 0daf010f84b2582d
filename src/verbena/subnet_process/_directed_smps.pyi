# SPDX-License-Identifier: Apache-2.0

from collections.abc import Callable

from verbena.manage.agents import NodeAgent, Subnet

from .mad_port import MadAgent

class DirectedSmps:
    """The directed-route requests of programs at an end port of a ``Subnet``.

    What it does with a request is what ``Subnet.inject`` does, without packets: the response does
    not go to the port's receiver.
    """

    def __init__(self, subnet: Subnet, node: NodeAgent, port: int) -> None: ...
    def answer(self, mad: bytes) -> bytes | None:
        """Return the response to a MAD, or None if it is of another kind, and nothing was done."""
    def serve(
        self,
        fd: int,
        agents: dict[int, MadAgent],
        headers: dict[int, bytes],
        queue: Callable[[bytes], None],
        most: int,
    ) -> bytes | bool:
        """Answer requests that are read from a socket, at most so many.

        Return the first message that is of another kind (empty: the program has closed the socket),
        False if there are no more messages, and True after ``most``. ``agents`` are by number, and
        ``headers`` go before their answers. ``queue`` is called with an answer that the socket
        does not take.
        """
