"""Runs of scenarios and their results."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from . import _holdover
from .congestion import CongestionControl
from .errors import HoldoverError
from .kernels import run_apart
from .mechanisms import Mechanism
from .scenario import Scenario
from .tables import Table

__all__ = ["Run", "RunVariant", "open_run", "run"]


def run(
    scenario: Scenario,
    *,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    variants: str | Iterable[str] | None = None,
    captures: bool = True,
    report: bool = True,
    jobs: int | None = None,
    mechanisms: Mapping[str, Callable[[], Mechanism]] | Iterable[tuple[str | None, str, Callable[[], Mechanism]]] = (),
    congestion: Mapping[str, Callable[[], CongestionControl]] | Iterable[tuple[str | None, str, Callable[[], CongestionControl]]] = (),
    export: Iterable[Literal["qlog", "xplot", "flowmon"]] = (),
    world: Literal["simulator", "real", "both"] = "simulator",
    repeat: int = 1,
    simulated: Iterable[str] = (),
    kernel_congestion: Literal["cubic", "reno", "bbr"] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Run the variants of a scenario in the simulator or on this machine's kernel, as ``holdover run`` does.

    The interpreter lock is released during the run. Ctrl-C ends the run within a tenth of a second and keeps no files.

    Parameters
    ----------
    scenario
        The scenario.
    out
        A new or empty directory for the results. The default is a temporary directory, which is removed with the `Run`.
    force
        Replace the results of an earlier run in `out`.
    variants
        The names of the variants to run. The default is all.
    captures
        Write captures (pcapng), as configured in the scenario.
    report
        Draw plots and write ``report.html``.
    jobs
        How many variants run in parallel. The default is the number of cores.
    mechanisms
        Mechanisms of your own: a dictionary from the name of a host or router to a factory of `Mechanism` objects (such as the class), or
        triples of variant (None for all), node and factory. They are behind those of the scenario, nearer to the link. At a router without
        mechanisms in the scenario, the mobile hosts are those that move between cells or have a link with outages: the mechanism handles
        their packets and receives their presence.
    congestion
        Congestion controls of your own, in the same form: hosts and a factory of a `CongestionControl` for each of their connections.
    export
        Additional output in formats of other programs, as with ``holdover run --export``.
    world
        ``"real"``: on this machine's kernel, in real time, with each host in a network namespace of its own; ``"both"``: in the simulator
        too. The run has a process of its own, so that the machine and this process are unchanged. Variants that cannot run on a kernel are
        skipped with a warning.
    repeat
        How often each variant is run on the kernel; tables have the medians.
    simulated
        Simulated hosts: a kernel then communicates with Holdover's own TCP.
    kernel_congestion
        The congestion control of the kernel, instead of the stacks' own.
    progress
        Called about ten times a second with a share from 0 to 1. An exception in it ends the run.

    Raises
    ------
    ScenarioError, HoldoverError
        If the scenario cannot be run or results cannot be written.
    ValueError
        If arguments exclude each other: a run on a kernel has no Python mechanisms, and the arguments about kernels need such a run.
    """
    temporary = tempfile.TemporaryDirectory(prefix="holdover-") if out is None else None
    directory = Path(temporary.name) / "run" if temporary else Path(os.fspath(out or ""))
    arguments = {
        "out": directory,
        "force": force,
        "variants": None if variants is None else _names(variants),
        "captures": captures,
        "report": report,
        "jobs": _jobs(jobs),
        "mechanisms": _triples(mechanisms),
        "congestion": _triples(congestion),
        "exports": _names(export),
        "kernels": _kernels(world, repeat, _names(simulated), kernel_congestion),
        "started": _started(),
    }
    if arguments["kernels"] is None:
        _holdover.run(scenario._native, **arguments, progress=progress)
    elif arguments["mechanisms"] or arguments["congestion"]:
        raise ValueError("mechanisms and congestion controls in Python are for the simulator: a kernel has its own TCP")
    else:
        run_apart(scenario, arguments, progress)
    return Run(directory, temporary)


def _names(given: str | Iterable[str]) -> list[str]:
    """Several names, or one."""
    return [given] if isinstance(given, str) else list(given)


def _jobs(jobs: int | None) -> int:
    if jobs is None:
        return os.cpu_count() or 1
    if not 1 <= jobs <= 1024:
        raise ValueError(f"jobs lies between 1 and 1024, and is not {jobs}")
    return jobs


def _kernels(
    world: str, repeat: int, simulated: list[str], congestion: str | None
) -> tuple[bool, int, list[str], str | None] | None:
    if world not in ("simulator", "real", "both"):
        raise ValueError(f'there is no world "{world}"; there are simulator, real, both')
    if world == "simulator":
        if repeat != 1 or simulated or congestion is not None:
            raise ValueError('repeat, simulated and kernel_congestion are about kernels: they need world="real" or world="both"')
        return None
    if not 1 <= repeat <= 1000:
        raise ValueError("repeat lies between 1 and 1000")
    return world == "both", repeat, simulated, congestion


def _triples(given: Any) -> list[tuple[str | None, str, Any]]:
    return [(None, node, maker) for node, maker in given.items()] if isinstance(given, Mapping) else list(given)


def open_run(directory: str | os.PathLike[str]) -> Run:
    """Open the results in a directory, written by this module or by ``holdover run``, also on real kernels."""
    return Run(Path(directory))


class Run:
    """The results of a run of all variants."""

    def __init__(self, directory: Path, keep: Any = None) -> None:
        self._keep = keep
        #: The directory of the files: see ``docs/guide/reports.md``.
        self.directory = directory
        path = directory / "summary.json"
        try:
            #: All measurements, as in ``summary.json``.
            self.summary: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise HoldoverError(f"{path}: {error}; is this the directory of a run?") from error
        if "variants" not in self.summary:
            raise HoldoverError(f"{directory} is not the directory of a run; open_sweep opens that of a sweep")

    @property
    def flows(self) -> Table:
        """One row for each flow of each variant."""
        return Table(_holdover.read_flows(self.directory / "flows.csv"))

    @property
    def variants(self) -> dict[str, RunVariant]:
        """The variants by their names."""
        return {entry["variant"]: RunVariant(self, entry) for entry in self.summary["variants"]}

    def __iter__(self) -> Iterator[str]:
        """The names of the variants."""
        return iter(self.variants)

    def __len__(self) -> int:
        return len(self.variants)

    def __getitem__(self, variant: str) -> RunVariant:
        found = self.variants
        if variant not in found:
            raise KeyError(f"there is no variant \"{variant}\"; there are {', '.join(found)}")
        return found[variant]

    def plot(self, name: str = "progress") -> Any:
        """A plot of the report as an ``SVG`` of IPython: ``"progress"``, or ``"VARIANT/NAME"`` for one of a variant."""
        from IPython.display import SVG

        return SVG((self._plot(name)).read_text())

    def _plot(self, name: str) -> Path:
        variant, _, plot = name.rpartition("/")
        directory = self[variant].directory / "plots" if variant else self.directory
        path = directory / f"{plot}.svg"
        if not path.is_file():
            known = ", ".join(sorted(found.stem for found in directory.glob("*.svg"))) or "none: the run was made without a report"
            raise KeyError(f"there is no plot \"{name}\"; there are {known}")
        return path

    def __repr__(self) -> str:
        return f"<Run of {self.summary['name']!r}: {', '.join(self.variants)}>"

    def _repr_html_(self) -> str:
        plot = self.directory / "progress.svg"
        return (plot.read_text() if plot.is_file() else "") + self.flows._repr_html_()


class RunVariant:
    """The results of one variant."""

    def __init__(self, run: Run, entry: dict[str, Any]) -> None:
        self._run = run
        #: All measurements of the variant.
        self.summary = entry
        #: The directory of its files.
        self.directory = run.directory / entry["directory"]

    @property
    def samples(self) -> Table:
        """The states of connections over time, with the names of Linux's ``TCP_INFO``."""
        return Table(_holdover.read_samples(self.directory / "samples.csv"))

    @property
    def events(self) -> Table:
        """The events: links, registrations, flows, retransmissions, drops, actions of mechanisms."""
        return Table(_holdover.read_events(self.directory / "events.jsonl"))

    @property
    def actions(self) -> Table:
        """The actions of mechanisms: ``t_s``, ``node``, ``mechanism``, ``what`` and ``connection``."""
        return Table(_holdover.read_actions(self.directory / "events.jsonl"))

    @property
    def captures(self) -> dict[str, Path]:
        """The captures by the names of their interfaces."""
        return {path.stem: path for path in sorted((self.directory / "captures").glob("*.pcap*"))}

    def __repr__(self) -> str:
        return f"<RunVariant {self.summary['variant']!r}, {self.summary['ending']} after {self.summary['ended_at_s']:.3f} s>"


def _started() -> tuple[str, list[str]]:
    """The start time and the command line, for ``manifest.json``."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), list(getattr(sys, "orig_argv", sys.argv))
