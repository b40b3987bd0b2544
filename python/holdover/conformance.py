"""Measurements of this machine's kernel and of the daemons, by the program ``holdover conformance``.

The module has neither the daemons nor the privileges that these measurements need: the program makes them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import Any, Literal

from .errors import HoldoverError

__all__ = ["Conformance", "conformance"]

_GRIDS = ("agent", "agent-links", "gateway", "moves")

#: How long the program may take to remove its namespaces after Ctrl-C.
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Conformance:
    """The results of ``holdover conformance``.

    Attributes
    ----------
    is_sound : bool
        Whether every case is within its tolerance, or differs for a known reason; of a grid, whether every cell meets its bounds.
    report : dict
        The results, as ``holdover conformance --json`` prints them: the machine, and ``experiments`` with their cases, or the grid's
        ``cells`` with their runs.
    """

    is_sound: bool
    report: dict[str, Any]


def conformance(
    grid: Literal["agent", "agent-links", "gateway", "moves"] | None = None,
    *,
    only: str | None = None,
    long: bool = False,
    repeat: int | None = None,
    jobs: int | None = None,
    journal: str | os.PathLike[str] | None = None,
    program: str | os.PathLike[str] | None = None,
) -> Conformance:
    """Measure this machine's kernel around outages, or a grid of transfers with a daemon, as ``holdover conformance`` does.

    Needs Linux, and root or user namespaces. The measurements are made in network namespaces of their own.

    Parameters
    ----------
    grid
        Measure transfers with this daemon, or over moves to another address. By default the kernel is compared with the profiles that
        model it.
    only
        Make only the cases whose name contains this.
    long
        Also make the cases that take minutes.
    repeat
        The number of runs of each transfer of a grid. The default is 3.
    jobs
        The number of concurrent cases.
    journal
        A file for the runs of a grid. An interrupted grid continues from it.
    program
        The program ``holdover``, built with all features. The default is the environment variable ``HOLDOVER_BIN``, and without it
        ``holdover`` on the path.

    Raises
    ------
    HoldoverError
        The program is missing, or could not measure; with its reason.
    """
    if grid is not None and grid not in _GRIDS:
        raise ValueError(f"there is no grid {grid!r}; there are {', '.join(_GRIDS)}")
    if grid is None and (repeat is not None or journal is not None):
        raise ValueError("repeat and journal are for grids")
    given = {"only": only, "repeat": repeat, "jobs": jobs, "journal": None if journal is None else os.fspath(journal)}
    options = [f"--{name}={value}" for name, value in given.items() if value is not None]
    options += [f"--{grid}"] if grid is not None else []
    options += ["--long"] if long else []
    name = os.fspath(program if program is not None else os.environ.get("HOLDOVER_BIN", "holdover"))
    return _measured([name, "conformance", "--json", *options])


def _measured(command: list[str]) -> Conformance:
    """The results of a program that prints them as JSON, and fails if they are not sound."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    except OSError as error:
        raise HoldoverError(f"{command[0]} cannot be started: {error.strerror}") from error
    try:
        printed, complaints = process.communicate()
    except BaseException:
        # Ctrl-C is for this process, which passes it on: the program removes its namespaces.
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        raise
    try:
        report = json.loads(printed)
    except json.JSONDecodeError:
        reason = complaints.strip().removeprefix("error: ") or f"it has ended with status {process.returncode}"
        raise HoldoverError(f"{' '.join(command)}: {reason}") from None
    if process.returncode != 0 and set(report) == {"error"}:
        raise HoldoverError(report["error"])
    return Conformance(process.returncode == 0, report)
