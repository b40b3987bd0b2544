"""Mechanisms of one's own, in the path of packets at a host or router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ._holdover import Packet

__all__ = ["LinkEvent", "Mechanism", "Packet", "Presence"]

Direction = Literal["out", "in"]
Verdict = Literal["pass", "drop", "keep"]


@dataclass(frozen=True)
class LinkEvent:
    """What the layers below say of the link.

    Attributes
    ----------
    kind : {"fading", "recovered", "down", "up"}
        A disconnection is predicted; the prediction was wrong; the host is cut off; connectivity is back.
    lead : int or None
        How long from now the link is expected to fade, in ns, if that is known.
    symmetric : bool
        Whether the peer has learnt of the return at the same time.
    moved : bool
        Whether the attachment is another one than before.
    """

    kind: Literal["fading", "recovered", "down", "up"]
    lead: int | None = None
    symmetric: bool = False
    moved: bool = False


@dataclass(frozen=True)
class Presence:
    """Where a mobile host is, as a router sees it: from its link layer, or from a registration.

    Attributes
    ----------
    kind : {"present", "rebound", "fading", "away", "moved"}
        - present: it is reachable from this router, maybe again.
        - rebound: it is reachable, and has registered with another care-of address.
        - fading: it is about to leave.
        - away: packets for it get lost.
        - moved: it is attached elsewhere; packets that leave this router find it there.
    lead : int or None
        Time until it is expected to leave, in ns, if that is known.
    """

    kind: Literal["present", "rebound", "fading", "away", "moved"]
    lead: int | None = None


class Mechanism:
    """A mechanism between a host's TCP and its link, or at a router, for prototypes.

    At a host it sees every packet that the host sends (``"out"``) and receives (``"in"``); at a router, those to the mobile hosts that the router
    looks after (``"out"``) and from them (``"in"``). It may change, drop, keep and send packets. Times are whole
    nanoseconds of the run. A mechanism must take nothing from outside (no clock, no unseeded random numbers): a run is a function of
    scenario and seed.

    Every packet costs a call into Python: a run of ``examples/reconnect_acks.py`` takes about six times as long as one with the
    same mechanism in Rust. What it raises ends the run and is raised by `holdover.run`.

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
        """A packet passes.

        Returns
        -------
        {None, "pass", "drop", "keep"}
            What becomes of it: it goes on, with the changes made to it (None or ``"pass"``); it ends here; or the mechanism has kept a
            copy to send later.
        """
        return None

    def handle_link(self, now: int, event: LinkEvent) -> None:
        """At a host: something has happened to the link."""

    def handle_mobile(self, now: int, mobile: str, presence: Presence) -> None:
        """At a router: where the mobile host with this address is. Called for each address of the host. Of a router with
        ``hears_links = false`` for registrations only."""

    def handle_failed_attempt(self, now: int, packet: Packet) -> None:
        """At a router beside a link that repeats its own losses (ARQ): an attempt to transmit this packet has failed.

        The link repeats it or gives it up by itself; changes to `packet` have no effect.
        """

    def handle_timeout(self, now: int) -> None:
        """The time set by `wake_at` has come."""

    def send(self, packet: Packet, direction: Direction = "out") -> None:
        """Send a packet: to the link (``"out"``), or to the host's own TCP and, from a router, to the fixed host (``"in"``).

        It follows the packet that passes.
        """
        _check(direction, packet)
        if self._outbox is None:
            self._outbox = []
        self._outbox.append((direction, packet.copy()))

    def wake_at(self, time: int | None) -> None:
        """Have `handle_timeout` called at this time in ns, in place of the one before; None for never."""
        if time is not None and not (isinstance(time, int) and 0 <= time < 2**64):
            raise ValueError(f"wake_at takes a time of the run in whole nanoseconds, or None, and not {time!r}")
        self._wake_at = time

    def note(self, what: str, packet: Packet, direction: Direction = "out") -> None:
        """Put an action into the run's events: ``what`` in a word or two, to the connection of `packet`, which goes in `direction`."""
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
    """Errors at the line of the mechanism that makes them, not where the simulator fetches what it asked for."""
    if direction not in ("out", "in"):
        raise ValueError(f'"{direction}" is no direction; directions are "out" and "in"')
    if not isinstance(packet, Packet):
        raise TypeError(f"a Packet is needed, and not {packet!r}")
