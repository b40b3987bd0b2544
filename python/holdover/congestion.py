"""Congestion controls in Python."""

from __future__ import annotations

from ._holdover import SendState

__all__ = ["CongestionControl", "SendState"]


class CongestionControl:
    """A congestion control of a host's TCP, for prototypes. Each connection of the host that sends data has its own object.

    Set ``state.cwnd`` and ``state.ssthresh``, in segments, in any of the methods. Outside of recovery the window keeps its last value. During
    recovery (``state.state`` is ``"recovery"`` or ``"cwr"``) the stack reduces it to ssthresh (RFC 6937), unless a method sets it. After a
    timeout the stack begins with a window of one segment. The stack undoes a spurious timeout or recovery, including the window. It also
    decides which segments are lost, when they are retransmitted, and the pacing.

    Times are whole nanoseconds of the run. Methods must not use outside input (no clock, no unseeded random numbers): a run is a function of
    scenario and seed. Each ACK costs some calls into Python. An exception in a method ends the run, and `holdover.run` raises it.

    Examples
    --------
    >>> class Fixed(CongestionControl):
    ...     def on_ack(self, now, state):
    ...         state.cwnd = 20
    """

    def on_ack(self, now: int, state: SendState) -> None:
        """Segments were delivered: ``state.acked``, by number or by SACK."""

    def on_recovery(self, now: int, state: SendState) -> None:
        """Losses were detected, and recovery begins. The stack has set ``state.ssthresh``; a method may replace it."""

    def on_timeout(self, now: int, state: SendState) -> None:
        """The retransmission timer has expired. Nothing is retransmitted yet."""
