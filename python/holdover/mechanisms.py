"""Mechanisms in Python, in the path of packets at a host or router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ._holdover import Packet

__all__ = ["LinkEvent", "Mechanism", "Packet", "Presence"]

Direction = Literal["out", "in"]
Verdict = Literal["pass", "drop", "keep"]


@dataclass(frozen=True)
class LinkEvent:
    """A link event from the layers below.

    Attributes
    ----------
    kind : {"fading", "recovered", "down", "up"}
        A disconnection is predicted; the prediction was wrong; the host is cut off; connectivity is back.
    lead : int or None
        The time until the predicted disconnection, in ns, if known.
    symmetric : bool
        Whether the peer receives link-up at the same time.
    moved : bool
        Whether the attachment has changed.
    """

    kind: Literal["fading", "recovered", "down", "up"]
    lead: int | None = None
    symmetric: bool = False
    moved: bool = False


@dataclass(frozen=True)
class Presence:
    """The presence of a mobile host at a router, reported by the link layer or by a registration.

    Attributes
    ----------
    kind : {"present", "rebound", "fading", "away", "moved"}
        - present: the host is reachable from this router, possibly again.
        - rebound: the host is reachable, and has registered with another care-of address.
        - fading: the host is about to leave.
        - away: packets for the host are lost.
        - moved: the host is attached elsewhere; packets from this router reach it there.
    lead : int or None
        The time until the predicted departure, in ns, if known.
    """

    kind: Literal["present", "rebound", "fading", "away", "moved"]
    lead: int | None = None


class Mechanism:
    """A mechanism between a host's TCP and its link, or at a router, for prototypes.

    At a host it handles every packet that the host sends (``"out"``) and receives (``"in"``); at a router, packets to the router's mobile hosts
    (``"out"``) and from them (``"in"``). It may change, drop, keep and send packets. Times are whole nanoseconds of the run. A mechanism must
    not use outside input (no clock, no unseeded random numbers): a run is a function of scenario and seed.

    Every packet costs a call into Python: a run of ``examples/reconnect_acks.py`` takes about six times as long as one with the
    same mechanism in Rust. An exception in it ends the run, and `holdover.run` raises it.

    Examples
    --------
    >>> class Deaf(Mechanism):
    ...     name = "deaf"
    ...     def handle_packet(self, now, direction, packet):
    ...         return "drop" if direction == "in" and packet.is_pure_ack else None
    """

    #: The name in events and reports.
    name = "python"

    # Results that the simulator fetches after each call. They are class attributes, so that a subclass need not call `__init__` of this class.
    _outbox: list[tuple[str, Packet]] | None = None
    _notes: list[tuple[str, str, Packet]] | None = None
    _wake_at: int | None = None

    def handle_packet(self, now: int, direction: Direction, packet: Packet) -> Verdict | None:
        """Handle a packet.

        Returns
        -------
        {None, "pass", "drop", "keep"}
            The verdict: the packet continues with its changes (None or ``"pass"``); it is dropped; or the mechanism has kept a copy to
            send later.
        """
        return None

    def handle_link(self, now: int, event: LinkEvent) -> None:
        """At a host: a link event."""

    def handle_mobile(self, now: int, mobile: str, presence: Presence) -> None:
        """At a router: the presence of the mobile host with this address. Called for each address of the host. With
        ``hears_links = false`` it is called for registrations only."""

    def handle_failed_attempt(self, now: int, packet: Packet) -> None:
        """At a router beside a link that retransmits its own losses (ARQ): an attempt to transmit this packet has failed.

        The link decides whether to retransmit the packet; changes to `packet` have no effect.
        """

    def handle_timeout(self, now: int) -> None:
        """The time set by `wake_at` has come."""

    def send(self, packet: Packet, direction: Direction = "out") -> None:
        """Send a packet: to the link (``"out"``), or to the host's own TCP and, from a router, to the fixed host (``"in"``).

        It follows the packet that is being handled.
        """
        _check(direction, packet)
        if self._outbox is None:
            self._outbox = []
        self._outbox.append((direction, packet.copy()))

    def wake_at(self, time: int | None) -> None:
        """Schedule `handle_timeout` at this time in ns, which replaces the previous one; None for never."""
        if time is not None and not (isinstance(time, int) and 0 <= time < 2**64):
            raise ValueError(f"wake_at takes a time of the run in whole nanoseconds, or None, and not {time!r}")
        self._wake_at = time

    def note(self, what: str, packet: Packet, direction: Direction = "out") -> None:
        """Add an action to the run's events: ``what`` in a word or two, for the connection of `packet`, which goes in `direction`."""
        _check(direction, packet)
        if not isinstance(what, str):
            raise TypeError(f"note takes a text first, and not {what!r}")
        if self._notes is None:
            self._notes = []
        self._notes.append((what, direction, packet.copy()))

    def _handle_link(self, now: int, kind: str, lead: int | None, symmetric: bool, moved: bool) -> None:
        self.handle_link(now, LinkEvent(kind, lead, symmetric, moved))  # type: ignore[arg-type]

    def _handle_mobile(self, now: int, mobile: str, kind: str, lead: int | None) -> None:
        self.handle_mobile(now, mobile, Presence(kind, lead))  # type: ignore[arg-type]

    def _take_outbox(self) -> list[tuple[str, Packet]]:
        taken, self._outbox = self._outbox or [], None
        return taken

    def _take_notes(self) -> list[tuple[str, str, Packet]]:
        taken, self._notes = self._notes or [], None
        return taken


def _check(direction: str, packet: Packet) -> None:
    """Raises errors at the line of the mechanism, not where the simulator fetches the packets."""
    if direction not in ("out", "in"):
        raise ValueError(f'"{direction}" is no direction; directions are "out" and "in"')
    if not isinstance(packet, Packet):
        raise TypeError(f"a Packet is needed, and not {packet!r}")
