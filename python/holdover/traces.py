"""Link traces from public measurements, as the CSV tables that a link's ``trace`` names.

What these data sets hold is what a transfer got, which is a lower bound of what the link could do: a link made of them has at least the outages and the dips that a
transfer met.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from .errors import HoldoverError

__all__ = ["Condition", "from_ghent", "from_gnettrack", "table"]

#: Below this rate a link is written as down: a transfer that got less in a second or so got nothing.
_DOWN_BPS = 1000.0


@dataclass(frozen=True)
class Condition:
    """What a link does from a time on.

    Attributes
    ----------
    t_s : float
        Seconds since the start.
    rate_bps : float
        bit/s; below 1 kbit/s the link is down.
    delay_s : float or None
        One way, in seconds.
    loss : float or None
        A probability.
    """

    t_s: float
    rate_bps: float
    delay_s: float | None = None
    loss: float | None = None


def table(conditions: Iterable[Condition], source: str = "") -> str:
    """The CSV table of a link's conditions.

    Parameters
    ----------
    conditions
        In order of time. The first one is moved to 0. Each holds until the next, and the last as long as the one before it.
    source
        Where they come from, for a comment in the first line.

    Raises
    ------
    HoldoverError
        With fewer than two conditions, times out of order, or a delay or loss that only some of them have.
    """
    rows = list(conditions)
    if len(rows) < 2:
        raise HoldoverError(f"a trace needs two moments at least, and {source or 'this'} has {len(rows)}")
    lines = [f"# {' '.join(source.split())}"] if source else []
    names = [name for name in ("delay_s", "loss") if any(getattr(row, name) is not None for row in rows)]
    for name in names:
        if any(getattr(row, name) is None for row in rows):
            raise HoldoverError(f"{source or 'the trace'}: some moments have a {name.removesuffix('_s')} and some have none")
    lines.append(",".join(["t", "rate", "up", *(name.removesuffix("_s") for name in names)]))
    last = rows[-1]
    end = Condition(2 * last.t_s - rows[-2].t_s, last.rate_bps, last.delay_s, last.loss)
    previous = None
    for row in [*rows, end]:
        if previous is not None and row.t_s <= previous:
            raise HoldoverError(f"{source or 'the trace'}: after {previous} s comes {row.t_s} s")
        previous = row.t_s
        up = row.rate_bps >= _DOWN_BPS
        cells = [f"{row.t_s - rows[0].t_s:.6f}", f"{max(row.rate_bps, _DOWN_BPS):.0f}", "1" if up else "0"]
        lines.append(",".join([*cells, *(f"{getattr(row, name):.9f}" for name in names)]))
    return "\n".join(lines) + "\n"


def from_gnettrack(path: str | os.PathLike[str], direction: Literal["down", "up"] = "down") -> str:
    """A trace from a log of G-NetTrack Pro: the 4G and 5G data sets of University College Cork.

    Raca et al., "Beyond Throughput: a 4G LTE Dataset with Channel and Context Metrics" (MMSys 2018) and "Beyond Throughput, the Next
    Generation: a 5G Dataset with Channel and Context Metrics" (MMSys 2020). One row a second; ``DL_bitrate`` and ``UL_bitrate`` are in
    kbit/s, ``State`` is ``D`` during a download. Rows of other states say nothing of the link and are left out, and of several rows with the
    same time the last one counts.
    """
    path = Path(path)
    column = {"down": "DL_bitrate", "up": "UL_bitrate"}[direction]
    rates: dict[datetime, float] = {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = {"Timestamp", column} - set(reader.fieldnames or [])
        if missing:
            raise HoldoverError(f"{path}: there is no column {' and '.join(sorted(missing))}; is this a log of G-NetTrack Pro?")
        for row in reader:
            if row.get("State", "D") != "D" or row[column] in ("-", ""):
                continue
            try:
                rates[datetime.strptime(row["Timestamp"], "%Y.%m.%d_%H.%M.%S")] = float(row[column]) * 1000
            except ValueError as error:
                raise HoldoverError(f"{path}:{reader.line_num}: {error}") from error
    times = sorted(rates)
    conditions = [Condition((time - times[0]).total_seconds(), rates[time]) for time in times]
    return table(conditions, f"{column} of {path.name}, a log of G-NetTrack Pro")


def from_ghent(path: str | os.PathLike[str]) -> str:
    """A trace from a log of Ghent University's 4G/LTE bandwidth measurements.

    Van der Hooft et al., "HTTP/2-Based Adaptive Streaming of HEVC Video over 4G/LTE Networks" (IEEE Communications Letters, 2016). Each line has
    the time in ms since 1970 and since the start, latitude, longitude, the bytes received since the line before, and in how many ms.
    """
    path = Path(path)
    conditions = []
    clock = 0.0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            received, span = (float(word) for word in line.split()[4:6])
            if received < 0 or span <= 0:
                raise ValueError("bytes below 0, or a time that is not above 0")
        except ValueError as error:
            raise HoldoverError(f"{path}:{number}: six numbers were expected: time, time, latitude, longitude, bytes, ms ({error})") from error
        conditions.append(Condition(clock, received * 8 / (span / 1000)))
        clock += span / 1000
    return table(conditions, f"{path.name}, a log of Ghent University's 4G/LTE measurements")
