# SPDX-License-Identifier: Apache-2.0
"""Services that ports offer: ServiceRecords with a lease (IBA 15.2.5.14).

``SubnetAdministration`` passes requests on, and calls ``expire`` when a lease is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..attribute_ids import SaStatus
from ..sa_query import SaQuery
from ..sa_records import ServiceAssociationRecord, ServiceRecord
from .refusal import SaRefusal

__all__ = ["OfferedService", "ServiceBook"]

FOREVER = 0xFFFFFFFF
_Key = tuple[int, bytes, int]


@dataclass
class OfferedService:
    """A service; ``until`` is when its lease ends, or None."""

    record: ServiceRecord
    until: float | None

    def at(self, now: float) -> ServiceRecord:
        """Return the record with the seconds that are left of its lease."""
        if self.until is None:
            return self.record
        return self.record.replace(service_lease=max(0, int(self.until - now)))


class ServiceBook:
    """All services, by ID, GID and P_Key."""

    def __init__(self) -> None:
        self._services: dict[_Key, OfferedService] = {}

    def offer(self, query: SaQuery[ServiceRecord], now: float) -> ServiceRecord:
        """Enter or renew a service. Raises SaRefusal."""
        record = query.record
        for name in ("service_id", "service_gid", "service_p_key", "service_lease"):
            if not query.has(name):
                raise SaRefusal(
                    SaStatus.INSUFFICIENT_COMPONENTS, f"a service needs {name}, at least"
                )
        key = record.service_id, record.service_gid, record.service_p_key
        present = self._services.get(key)
        if present is not None and present.record.service_key != record.service_key:
            raise SaRefusal(SaStatus.DENIED, "the service is there with another key")
        lease = record.service_lease
        until = None if lease == FOREVER else now + lease
        self._services[key] = OfferedService(record, until)
        return record

    def delete(self, query: SaQuery[ServiceRecord]) -> ServiceRecord:
        """Remove a service. Raises SaRefusal if there is none, or it has another key."""
        for key, service in self._services.items():
            record = service.record
            if (record.service_id, record.service_gid) == (
                query.record.service_id,
                query.record.service_gid,
            ) and (not query.has("service_p_key") or key[2] == query.record.service_p_key):
                if any(record.service_key) and record.service_key != query.record.service_key:
                    raise SaRefusal(SaStatus.DENIED, "the service has another key")
                del self._services[key]
                return record
        raise SaRefusal(SaStatus.NO_RECORDS, "there is no such service")

    def records(self, now: float) -> Iterator[ServiceRecord]:
        """Return the services whose lease is not over."""
        for service in self._services.values():
            if service.until is None or service.until > now:
                yield service.at(now)

    def associations(self, now: float) -> Iterator[ServiceAssociationRecord]:
        """Return the key and name of each service that has a key."""
        for record in self.records(now):
            if any(record.service_key):
                yield ServiceAssociationRecord(
                    service_key=record.service_key, service_name=record.service_name
                )

    def next_expiry(self) -> float | None:
        """Return when the next lease ends, or None."""
        ends = (each.until for each in self._services.values() if each.until is not None)
        return min(ends, default=None)

    def expire(self, now: float) -> None:
        """Remove services whose lease is over."""
        over = [
            key
            for key, each in self._services.items()
            if each.until is not None and each.until <= now
        ]
        for key in over:
            del self._services[key]

    def remove_gids(self, gone: set[bytes]) -> None:
        """Remove the services of ports that have left the subnet."""
        for key in [key for key in self._services if key[1] in gone]:
            del self._services[key]

    def clear(self) -> None:
        """Remove all services."""
        self._services.clear()
