"""Papers whose experiments come with Holdover, and their claims."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _holdover
from .runs import _jobs, _names
from .scenario import Scenario

__all__ = ["Claim", "Paper", "Verdict", "paper", "papers"]


@dataclass(frozen=True)
class Claim:
    """A claim of a paper: its name, its experiment, and the sentence."""

    name: str
    experiment: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """A claim with its verdict (``"holds"``, ``"fails"``, ``"not checkable"`` or ``"check broken"``) and the findings."""

    claim: Claim
    verdict: str
    found: str


@dataclass(frozen=True)
class Paper:
    """A paper.

    Attributes
    ----------
    name, title, authors : str
        Its name in Holdover, its title, and its authors.
    experiments : dict
        The names of its experiments, each with the names of its scenarios: usually one, none if it cannot be run, several if its results
        are combined.
    claims : tuple of Claim
        Its claims.
    """

    name: str
    title: str
    authors: str
    experiments: dict[str, tuple[str, ...]]
    claims: tuple[Claim, ...]

    def scenario(self, name: str) -> Scenario:
        """One of its scenarios, to run, sweep or change."""
        return Scenario(_holdover.paper_scenario(self.name, name))

    def reproduce(
        self,
        experiments: str | Iterable[str] | None = None,
        *,
        out: str | os.PathLike[str] | None = None,
        jobs: int | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> list[Verdict]:
        """Run experiments (by default all) and judge the claims about them, as ``holdover reproduce`` does.

        Parameters
        ----------
        experiments
            The names of experiments.
        out
            A directory for the sweeps; completed runs in it are not repeated.
        jobs
            Parallel runs. The default is the number of cores.
        progress
            Called with the name of the present sweep, the number of its completed runs, and the estimated total.
        """
        chosen = None if experiments is None else _names(experiments)
        count = _jobs(jobs)
        with tempfile.TemporaryDirectory(prefix="holdover-") as temporary:
            directory = Path(temporary) if out is None else Path(out)
            judged = _holdover.reproduce(self.name, chosen, directory, count, progress)
        return [Verdict(Claim(name, about, text), verdict, found) for name, about, text, verdict, found in judged]

    def fit(
        self,
        *,
        settings: int | None = None,
        runs: int | None = None,
        out: str | os.PathLike[str] | None = None,
        jobs: int | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> dict[str, Any]:
        """Search for the setting of the paper's open parameters that fits its printed numbers best, as ``holdover reproduce --fit`` does.

        Parameters
        ----------
        settings, runs
            The number of settings in the sample, and of runs of each cell. The default is in the paper's file.
        out
            A directory for the sweeps; completed runs in it are not repeated.
        jobs, progress
            As for `reproduce`.

        Returns
        -------
        dict
            ``setting``: the value of each open input; ``search``: the number of evaluated settings, their losses, and how many of the printed
            numbers are within a tenth.
        """
        for what, number in [("settings", settings), ("runs", runs)]:
            if number is not None and number < 1:
                raise ValueError(f"{what} is at least 1, and is not {number}")
        with tempfile.TemporaryDirectory(prefix="holdover-") as temporary:
            directory = Path(temporary) if out is None else Path(out)
            return json.loads(_holdover.fit(self.name, settings, runs, directory, _jobs(jobs), progress))


def papers() -> list[Paper]:
    """All papers that come with Holdover."""
    return [
        Paper(name, title, authors, {one: tuple(scenarios) for one, scenarios in experiments}, tuple(Claim(*claim) for claim in claims))
        for name, title, authors, experiments, claims in _holdover.papers()
    ]


def paper(name: str) -> Paper:
    """The paper of this name."""
    found = {one.name: one for one in papers()}
    if name not in found:
        raise KeyError(f"there is no paper \"{name}\"; there are {', '.join(found)}")
    return found[name]
