"""Congestion controls of one's own."""

from __future__ import annotations

from ._holdover import SendState

__all__ = ["CongestionControl", "SendState"]


class CongestionControl:
    """A congestion control at a host's TCP, for prototypes. Each connection of the host that sends data has an object of its own.

    Set ``state.cwnd`` and ``state.ssthresh``, in segments, in any of the methods. Outside of recovery the window stays as it was set last;
    during recovery (``state.state`` is ``"recovery"`` or ``"cwr"``) the stack reduces it to ssthresh by itself (RFC 6937), unless a method
    sets it. After a timeout the stack begins with a window of one segment, and a timeout or recovery that turns out to be spurious is undone by the stack, the window included. Which segments are lost and when they are sent again remains
    the stack's affair, as does pacing.

    Times are whole nanoseconds of the run. Nothing may come from outside (no clock, no unseeded random numbers): a run is a function of scenario and
    seed. Each ACK costs some calls into Python. What a method raises ends the run and is raised by `holdover.run`.

    Examples
    --------
    >>> class Fixed(CongestionControl):
    ...     def on_ack(self, now, state):
    ...         state.cwnd = 20
    """

    def on_ack(self, now: int, state: SendState) -> None:
        """Segments were delivered: ``state.acked``, by number or by SACK."""

    def on_recovery(self, now: int, state: SendState) -> None:
        """Segments were found lost, and recovery begins. The stack has set ``state.ssthresh``; another value takes its place."""

    def on_timeout(self, now: int, state: SendState) -> None:
        """The retransmission timer has expired, before anything is sent again."""
