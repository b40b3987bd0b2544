"""Link traces from public measurements, as the CSV tables that a link's ``trace`` names.

These data sets record the rate of a transfer, which is a lower bound of the link's capacity: a link made from them has at least the outages and
dips that the transfer met.
"""

from __future__ import annotations

import csv
import json
import math
import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from . import _holdover
from .errors import HoldoverError

__all__ = [
    "Condition",
    "from_capture",
    "from_ghent",
    "from_gnettrack",
    "from_irtt",
    "from_leo_and_cellular",
    "from_lumos5g",
    "from_wetlinks",
    "table",
]

#: Below this rate a link is written as down: a lower rate in about a second means that the transfer received nothing.
_DOWN_BPS = 1000.0


@dataclass(frozen=True)
class Condition:
    """The conditions of a link from a time on.

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
        Conditions in order of time. The first one is moved to 0. Each holds until the next, and the last as long as the one before it.
    source
        The source, for a comment in the first line.

    Raises
    ------
    HoldoverError
        For fewer than two conditions, times out of order, or a delay or loss that only some of the conditions have.
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
    for row in rows:
        is_possible = math.isfinite(row.t_s) and math.isfinite(row.rate_bps) and row.rate_bps >= 0
        if not is_possible or not 0 <= (row.delay_s or 0) < math.inf or not 0 <= (row.loss or 0) <= 1:
            raise HoldoverError(f"{source or 'the trace'}: {row} is not possible")
    for row in [*rows, end]:
        if previous is not None and row.t_s <= previous:
            raise HoldoverError(f"{source or 'the trace'}: after {previous} s comes {row.t_s} s")
        previous = row.t_s
        up = row.rate_bps >= _DOWN_BPS
        cells = [f"{row.t_s - rows[0].t_s:.6f}", f"{max(row.rate_bps, _DOWN_BPS):.0f}", "1" if up else "0"]
        lines.append(",".join([*cells, *(f"{getattr(row, name):.9f}" for name in names)]))
    return "\n".join(lines) + "\n"


def from_capture(path: str | os.PathLike[str], interval_s: float = 1.0) -> str:
    """A trace from a capture (pcap or pcapng, also compressed): the path of its largest transfer, as with ``holdover scenario trace``.

    Parameters
    ----------
    path
        The capture, with both directions of the transfer.
    interval_s
        How long each row holds, in seconds; at least 1 ms.

    Raises
    ------
    HoldoverError
        If the file is no capture, or has no TCP connection with data.
    """
    if not 0.001 <= interval_s <= 86_400:
        raise HoldoverError(f"an interval of {interval_s} s is not between 1 ms and a day")
    return _holdover.link_trace(Path(path), round(interval_s * 1e9))


def from_gnettrack(path: str | os.PathLike[str], direction: Literal["down", "up"] = "down") -> str:
    """A trace from a log of G-NetTrack Pro: the 4G and 5G data sets of University College Cork.

    Raca et al., "Beyond Throughput: a 4G LTE Dataset with Channel and Context Metrics" (MMSys 2018) and "Beyond Throughput, the Next
    Generation: a 5G Dataset with Channel and Context Metrics" (MMSys 2020). One row a second; ``DL_bitrate`` and ``UL_bitrate`` are in
    kbit/s, ``State`` is ``D`` during a download. Rows of other states have no information about the link and are skipped; among several rows
    with the same time the last one counts.
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
    the time in ms since 1970 and since the start, latitude, longitude, the bytes received since the previous line, and the number of ms.
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


def from_lumos5g(path: str | os.PathLike[str], run: int) -> str:
    """A trace from one run of Lumos5G: walks and drives in Minneapolis under mmWave 5G.

    Narayanan et al., "Lumos5G: Mapping and Predicting Commercial mmWave 5G Throughput" (IMC 2020), `Lumos5G-v1.0.csv`: one row for each
    second (``seq_num``) of each run (``run_num``); ``Throughput`` is in Mbit/s.
    """
    path = Path(path)
    conditions: list[Condition] = []
    runs: set[str] = set()
    for number, row in _rows(path, ["run_num", "seq_num", "Throughput"], "the data set Lumos5G"):
        runs.add(row["run_num"])
        if row["run_num"] != str(run):
            continue
        try:
            conditions.append(Condition(float(row["seq_num"]), float(row["Throughput"]) * 1e6))
        except ValueError as error:
            raise HoldoverError(f"{path}:{number}: {error}") from error
    if not conditions:
        raise HoldoverError(f"{path}: there is no run {run}; there are {len(runs)} others")
    return table(conditions, f"run {run} of {path.name}, Lumos5G")


def from_leo_and_cellular(path: str | os.PathLike[str], run: int = 0) -> str:
    """A trace from one run of the drives through the USA with Starlink (Roam and Mobility) and three cellular networks.

    Hu et al., "LEO Satellite vs. Cellular Networks: Exploring the Potential for Synergistic Integration" (CoNEXT 2023), the files of UDP and TCP throughput:
    one row a second, ``time`` with the name of its zone, ``throughput`` in Mbit/s. The UDP files hold the link's capacity. A file has many runs in
    sequence: after ten seconds without a row the next one begins. Among rows with the same time the first counts.

    Parameters
    ----------
    path
        The file: ``mob`` and ``rm`` are Starlink.
    run
        The number of the run, from 0.
    """
    path = Path(path)
    runs: list[list[Condition]] = []
    last: datetime | None = None
    for number, row in _rows(path, ["time", "throughput"], "the data set of LEO satellites and cellular networks"):
        try:
            time = datetime.strptime(row["time"].rsplit(" ", 1)[0], "%Y-%m-%d %H:%M:%S")
            rate = float(row["throughput"]) * 1e6
        except ValueError as error:
            raise HoldoverError(f"{path}:{number}: {error}") from error
        since = 0.0 if last is None else (time - last).total_seconds()
        if since == 0 and last is not None:
            continue
        if last is None or not 0 < since <= 10:
            runs.append([])
            begin = time
        runs[-1].append(Condition((time - begin).total_seconds(), rate))
        last = time
    runs = [conditions for conditions in runs if len(conditions) > 1]
    if not 0 <= run < len(runs):
        raise HoldoverError(f"{path}: there is no run {run}; it has {len(runs)}, from 0")
    return table(runs[run], f"run {run} of {path.name}, LEO satellites and cellular networks")


def from_wetlinks(path: str | os.PathLike[str], direction: Literal["down", "up"] = "down") -> str:
    """A trace from WetLinks' measurements of Starlink by iperf.

    Laniewski et al., "WetLinks: a Large-Scale Longitudinal Starlink Dataset with Contiguous Weather Data" (TMA 2024), ``net_iperf.csv``:
    ``timestamp_start`` in ISO 8601, ``download`` and ``upload`` in bit/s. Rows without the direction's value, or with the time of the previous row, are
    skipped. Cut a file of many days first: between two measurements the former rate holds.
    """
    path = Path(path)
    column = {"down": "download", "up": "upload"}[direction]
    conditions: list[Condition] = []
    first: datetime | None = None
    for number, row in _rows(path, ["timestamp_start", column], "the data set WetLinks"):
        if not row[column].strip() or row[column].strip().lower() == "nan":
            continue
        try:
            time = datetime.fromisoformat(row["timestamp_start"])
            first = first or time
            condition = Condition((time - first).total_seconds(), float(row[column]))
        except (TypeError, ValueError) as error:
            raise HoldoverError(f"{path}:{number}: {error}") from error
        if not conditions or condition.t_s > conditions[-1].t_s:
            conditions.append(condition)
    return table(conditions, f"{column} of {path.name}, WetLinks")


def from_irtt(path: str | os.PathLike[str], interval_s: float = 1.0) -> str:
    """A trace of round trips, losses and outages from the JSON of irtt, for a link that has a rate of its own.

    The raw files of LENS (Zhao and Pan, "LENS: A LEO Satellite Network Measurement Dataset", MMSys 2024) are of this kind: Starlink, some dishes at
    intervals of 10 ms. For each interval the table has the median round trip (``delay.rtt``), and as loss the share of probes that were lost in either direction;
    if all of three or more probes were lost, the link is down.

    Parameters
    ----------
    path
        The file that ``irtt client -o FILE`` writes.
    interval_s
        How long each row holds, in seconds.
    """
    path = Path(path)
    try:
        trips = json.loads(path.read_text())["round_trips"]
        sent = [int(trip["timestamps"]["client"]["send"]["wall"]) for trip in trips]
        back = [None if trip["lost"] != "false" else float(trip["delay"]["rtt"]) / 1e9 for trip in trips]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise HoldoverError(f"{path}: {error!r}; is this the output of irtt client?") from error
    if not 0 < interval_s <= 86_400 or not sent:
        raise HoldoverError(f"{path}: no probes, or an interval of {interval_s} s")
    if any(rtt is not None and rtt <= 0 for rtt in back):
        raise HoldoverError(f"{path}: a round trip is not above 0")
    probes: dict[int, list[float | None]] = {}
    for at, rtt in zip(sent, back, strict=True):
        probes.setdefault(int((at - min(sent)) / 1e9 / interval_s), []).append(rtt)
    answered = [rtt for rtt in back if rtt is not None]
    if not answered:
        raise HoldoverError(f"{path}: no probe came back")
    lines = [f"# {' '.join(path.name.split())}, by irtt", "t,rtt,loss,up"]
    median = answered[0]
    for index in sorted(probes):
        came = [rtt for rtt in probes[index] if rtt is not None]
        median = statistics.median(came) if came else median
        up = bool(came) or len(probes[index]) < 3
        loss = 0.0 if not up else 1 - len(came) / len(probes[index])
        lines.append(f"{index * interval_s:.6f},{median:.9f},{loss:.6f},{int(up)}")
    lines.append(f"{(max(probes) + 1) * interval_s:.6f}," + lines[-1].split(",", 1)[1])
    return "\n".join(lines) + "\n"


def _rows(path: Path, columns: list[str], source: str) -> Iterable[tuple[int, dict[str, str]]]:
    """The rows of a CSV file that has these columns, with their lines."""
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = set(columns) - set(reader.fieldnames or [])
        if missing:
            raise HoldoverError(f"{path}: there is no column {' and '.join(sorted(missing))}; is this of {source}?")
        for row in reader:
            if any(row[column] is None for column in columns):
                raise HoldoverError(f"{path}:{reader.line_num}: the row is too short")
            yield reader.line_num, row
