# SPDX-License-Identifier: Apache-2.0
"""Networks and the Linux guest that the tests of the RoCE port share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.roce import networks
from tests.roce.networks import Network


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    reason = networks.reason_not_to()
    if reason:
        pytest.skip(reason)
    with Network() as made:
        yield made


@pytest.fixture(scope="session")
def jumbo_network() -> Iterator[Network]:
    """With room for a path MTU of 4096."""
    reason = networks.reason_not_to()
    if reason:
        pytest.skip(reason)
    with Network(mtu=9000, name="big") as made:
        yield made
