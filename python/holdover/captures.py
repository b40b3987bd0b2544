"""Where connections of a capture lost their time."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import _holdover

__all__ = ["Explained", "explain"]


@dataclass(frozen=True)
class Explained:
    """One direction of a TCP connection in which data was sent. Times are in seconds since the capture's first packet.

    Attributes
    ----------
    sender, receiver : str
        Address and port.
    place : str
        The place of the capture, inferred from the round trips to both ends.
    begin_s, end_s : float
        The connection's first and last packet.
    bytes : int
        Data, without retransmissions.
    segments, retransmissions : int
        Segments with data, and the retransmissions among them.
    rtt_s : float
        The path's least round trip.
    outages : list of (float, float or None, bool)
        Start, end (None if the path did not return) and whether the outage is sure.
    spent_s : dict
        The time of the connection by cause: ``"transfer"``, ``"outage"``, ``"RTO wait"`` and so on, as named by ``holdover explain``.
    """

    sender: str
    receiver: str
    place: str
    begin_s: float
    end_s: float
    bytes: int
    segments: int
    retransmissions: int
    rtt_s: float
    outages: list[tuple[float, float | None, bool]]
    spent_s: dict[str, float]


def explain(
    capture: str | os.PathLike[str],
    outages: Iterable[tuple[float, float]] = (),
    only_given: bool = False,
) -> list[Explained]:
    """Explain where each connection of a capture (pcap or pcapng, also compressed) lost its time, as ``holdover explain`` does.

    A damaged capture is explained up to the damage, with a warning.

    Parameters
    ----------
    capture
        The file.
    outages
        Known outages, as pairs of start and end in seconds since the capture's first packet. They are sure, and replace the outages that
        would be found at that time.
    only_given
        Do not search for other outages.

    Raises
    ------
    HoldoverError
        If the file cannot be read or is no capture.
    ValueError
        If an outage ends before it begins.
    """
    explained, damage = _holdover.explain(Path(capture), [(begin, end) for begin, end in outages], only_given)
    if damage is not None:
        warnings.warn(damage, stacklevel=2)
    return [Explained(**one) for one in explained]
