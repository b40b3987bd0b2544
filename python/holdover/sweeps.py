"""Sweeps: a scenario run over every combination of its axes' values, on one machine or by Dask."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from . import _holdover
from .errors import HoldoverError, Interrupted, ScenarioError
from .runs import _jobs, _started
from .scenario import Scenario
from .tables import Table

__all__ = ["Sweep", "open_sweep", "sweep"]

#: Submitted tasks for each thread of a worker: one runs, one waits.
_TASKS_PER_THREAD = 2

#: The most runs in one task, however short they are: the runs of a failed worker must be repeated.
_MOST_RUNS = 2000


def sweep(
    scenario: Scenario,
    *,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    client: Any = None,
    task_seconds: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Sweep a scenario, as ``holdover sweep`` does, and test whether its variants differ.

    Tables are the same to the byte for the same scenario and seed, with any number of threads or workers.

    Parameters
    ----------
    scenario
        A scenario with a ``[sweep]``.
    out
        The directory of the results: a new one, or one with a part of the same sweep, which is continued. The default is a temporary
        directory, which is removed with the `Sweep`.
    jobs
        Parallel runs on this machine. The default is the number of cores.
    client
        A ``distributed.Client``, whose workers then make the runs. They need this module in the same version.
    task_seconds
        The approximate duration of a Dask task: short runs are grouped.
    progress
        Called with the number of completed runs and the estimated total. An exception in it ends the sweep.

    Raises
    ------
    ScenarioError, HoldoverError
        If the scenario cannot be swept or results cannot be written.
    Interrupted
        If Dask's scheduler has failed. Completed runs are kept in `out`; the same call continues with them.
    """
    temporary = tempfile.TemporaryDirectory(prefix="holdover-") if out is None else None
    # Tables are read later, from any working directory.
    directory = Path(temporary.name) / "sweep" if temporary else Path(os.fspath(out or "")).absolute()
    if client is None:
        results = _holdover.sweep(scenario._native, directory, _jobs(jobs), progress, _started())
    else:
        if not all(hasattr(client, name) for name in ("submit", "ncores", "cancel")):
            raise TypeError(f"client is to be a distributed.Client, not {client!r}")
        driver = _holdover.SweepDriver(scenario._native, directory)
        _drive(driver, scenario, client, task_seconds, progress)
        results = driver.finish(_started())
    return Sweep(directory, results, temporary)


class Sweep:
    """The results of a sweep, which are read from their files on first access.

    If the runs do not fit in memory, read the data set ``runs.parquet`` in `directory` in parts, with ``dask.dataframe``, polars'
    ``scan_parquet`` or DuckDB.
    """

    def __init__(self, directory: Path, files: _holdover.SweepFiles, keep: Any = None) -> None:
        self._keep = keep
        self._files = files
        #: The directory of the files: see ``docs/guide/sweeps.md``.
        self.directory = directory

    @cached_property
    def runs(self) -> Table:
        """One row for each flow of each run."""
        return Table(self._files.runs())

    @cached_property
    def points(self) -> Table:
        """One row for each variant at each point: means, medians and tails with their 95 % intervals."""
        return Table(self._files.points())

    @cached_property
    def tests(self) -> Table | None:
        """One row for each comparison, with test, effect size, p by Holm's correction, and verdict; None if nothing was compared."""
        tests = self._files.tests()
        return None if tests is None else Table(tests)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Everything but the runs, as in ``summary.json``."""
        summary: dict[str, Any] = json.loads((self.directory / "summary.json").read_text())
        return summary

    @property
    def test(self) -> str:
        """The test in words; empty if there was no comparison."""
        made = self.summary.get("tests")
        if made is None:
            return ""
        name = {"paired": "paired t-test by seed", "welch": "Welch's t-test"}[made["test"]]
        return f"{name}; p by Holm's correction over {made['tests']} tests"

    def __repr__(self) -> str:
        runs, points = self._files.count
        return f"<Sweep of {self._files.name!r}: {runs} runs at {points} points>"

    def _repr_html_(self) -> str:
        tests = "" if self.tests is None else f"<p>{self.test}</p>{self.tests._repr_html_()}"
        return self.points._repr_html_() + tests


def open_sweep(directory: str | os.PathLike[str]) -> Sweep:
    """Open the results of a complete sweep in a directory, written by this module or by ``holdover sweep``.

    Raises
    ------
    HoldoverError
        If there are no results, or the sweep is not complete.
    """
    path = Path(os.fspath(directory)).absolute()
    return Sweep(path, _holdover.open_sweep(path))


def _drive(
    driver: _holdover.SweepDriver,
    scenario: Scenario,
    client: Any,
    task_seconds: float,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Has Dask's workers make the runs that `driver` wants, until it has enough."""
    from distributed import as_completed

    content = (_holdover.__version__, scenario.name, scenario.to_toml(), scenario._native.files())
    pool = as_completed()
    under_way: dict[Any, list[tuple[int, int]]] = {}
    again: deque[list[tuple[int, int]]] = deque()
    size = 1
    made, spent = 0, 0.0

    def fill() -> None:
        threads = sum(client.ncores().values()) or 1
        while len(under_way) < threads * _TASKS_PER_THREAD:
            # Tasks become smaller towards the end, so that no worker waits for another.
            done, expected = driver.progress()
            left = expected - done - sum(map(len, under_way.values()))
            units = again.popleft() if again else driver.next(max(1, min(size, left // (2 * threads))))
            if not units:
                return
            future = client.submit(_make_runs, content, units, pure=False, key=None)
            under_way[future] = units
            pool.add(future)

    try:
        fill()
        while not driver.is_complete():
            if not under_way:
                raise Interrupted(_gone("Dask has taken no task"))
            future = next(pool)
            units = under_way.pop(future)
            if future.status == "finished":
                rows, seconds = future.result()
                driver.take(rows)
                made, spent = made + len(rows), spent + seconds
                size = max(1, min(_MOST_RUNS, round(task_seconds * made / max(spent, 1e-6))))
            elif future.status == "error":
                error = future.exception()
                needed = " (the scheduler and all workers need the Python module holdover)" if "deserialization" in str(error) else ""
                raise HoldoverError(f"a task has failed{needed}: {error!r}; {_CONTINUES}") from error
            elif client.status == "running":
                # Its worker has failed, or the scheduler has lost the task.
                again.append(units)
            else:
                raise Interrupted(_gone(f"the task was {future.status}"))
            future.release()
            if progress is not None:
                progress(*driver.progress())
            fill()
    except (OSError, TimeoutError) as error:
        raise Interrupted(_gone(str(error))) from error
    finally:
        if under_way:
            try:
                client.cancel(list(under_way), force=True)
            except Exception:  # noqa: BLE001 - the scheduler may be gone; what matters is in the journal.
                pass


_CONTINUES = "what was finished is kept, and the same call continues with it"


def _gone(what: str) -> str:
    return f"the sweep has lost its workers ({what}); {_CONTINUES}"


#: Of the last sweeps that this process has worked for, what makes their runs.
_workers: dict[tuple[Any, ...], _holdover.SweepWorker] = {}


def _make_runs(content: tuple[str, str, str, dict[str, str]], units: list[tuple[int, int]]) -> tuple[list[str], float]:
    """The rows of runs, and how many seconds they took: what a task of Dask does."""
    begun = time.perf_counter()
    version, name, text, files = content
    if version != _holdover.__version__:
        raise HoldoverError(f"this worker has version {_holdover.__version__} of Holdover, the sweep is of version {version}")
    key = (name, text, tuple(sorted(files.items())), _thread())
    worker = _workers.get(key)
    if worker is None:
        if len(_workers) >= 64:
            _workers.clear()
        worker = _workers[key] = _holdover.SweepWorker(_holdover.Scenario.parse(name, text, files, None))
    return worker.make(units), time.perf_counter() - begun


def _thread() -> int:
    import threading

    return threading.get_ident()


def _main(arguments: list[str] | None = None) -> int:
    """What ``holdover sweep --dask`` calls: fills the journal of a sweep, whose results the program writes itself."""
    parser = argparse.ArgumentParser(prog="holdover sweep --dask", description=_main.__doc__)
    parser.add_argument("scenario")
    parser.add_argument("--dask", required=True, metavar="ADDRESS", help="the address of Dask's scheduler, such as tcp://head:8786")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--seed", type=int)
    args = parser.parse_args(arguments)
    try:
        import distributed  # noqa: F401
    except ImportError:
        print("error: Dask is not installed for this Python; pip install '.[dask]' in a clone, or pip install distributed", file=sys.stderr)
        return _REPORTED
    last = 0.0
    parent = os.getppid()

    def progress(done: int, expected: int) -> None:
        nonlocal last
        if os.getppid() != parent:
            # No caller waits for the task, and a continued sweep needs the journal.
            raise KeyboardInterrupt
        if sys.stderr.isatty() and time.monotonic() - last > 0.5:
            last = time.monotonic()
            print(f"\r{done} of about {expected} runs", end="", file=sys.stderr)

    try:
        scenario = Scenario.open(args.scenario)
        scenario = Scenario(scenario._native.with_texts(args.set))
        if args.seed is not None:
            scenario = scenario.with_(seed=args.seed)
        driver = _holdover.SweepDriver(scenario._native, Path(args.out))
        if driver.is_complete():
            return 0
        with _connected(args.dask) as client:
            _drive(driver, scenario, client, 1.0, progress)
    except (KeyboardInterrupt, Interrupted) as error:
        if str(error):
            print(f"error: {error}", file=sys.stderr)
        return 130
    except ScenarioError as error:
        print(error.report, end="", file=sys.stderr)
        return _REPORTED
    except (HoldoverError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _REPORTED
    return 0


#: The exit code after an error that was printed.
_REPORTED = 3


def _connected(address: str) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout="10s")
    except (OSError, TimeoutError, ValueError) as error:
        raise HoldoverError(f"there is no scheduler of Dask at {address}: {error}") from error
