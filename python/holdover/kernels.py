"""Runs on this machine's kernel, each in a process of its own.

Network namespaces are had by a process that has one thread, and they end with it. So a fresh interpreter makes the run, and the one that asked for
it, with all its threads, stays where it is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import _holdover
from .errors import HoldoverError
from .scenario import Scenario

__all__: list[str] = []

#: How long the process may take to remove what it has begun after it was told to stop.
_PATIENCE_S = 5.0


def run_apart(scenario: Scenario, arguments: dict[str, Any], progress: Callable[[float], None] | None) -> None:
    """Has another process make a run of `scenario` with these arguments of `_holdover.run`."""
    task = {
        "scenario": [scenario.name, scenario.to_toml(), scenario._native.files()],
        "arguments": {**arguments, "out": str(Path(arguments["out"]).absolute())},
    }
    # Ctrl-C is for this process, which passes it on.
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from holdover.kernels import _main; sys.exit(_main())"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=_environment(),
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with process.stdin as stdin:
            json.dump(task, stdin)
        for line in process.stdout:
            told = json.loads(line)
            if "warning" in told:
                warnings.warn(told["warning"], stacklevel=4)
            elif "error" in told:
                raise {"ValueError": ValueError}.get(told["kind"], HoldoverError)(told["error"])
            elif progress is not None:
                progress(told["share"])
        if process.wait() != 0:
            raise HoldoverError(f"the process of the run has ended early, with status {process.returncode}")
    except BrokenPipeError as error:
        raise HoldoverError("the process of the run has ended before it began; is this Python able to start another?") from error
    finally:
        _end(process)


def _environment() -> dict[str, str]:
    # The other interpreter finds this module where this one has found it.
    path = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def _main() -> int:
    """Makes the run that is described on standard input, and tells of it on standard output, a JSON object a line."""
    task = json.load(sys.stdin)
    name, text, files = task["scenario"]
    arguments = task["arguments"]
    try:
        scenario = _holdover.Scenario.parse(name, text, files, None)
        told = _holdover.run(
            scenario,
            **{
                **arguments,
                "out": Path(arguments["out"]),
                # JSON has no tuples.
                "kernels": tuple(arguments["kernels"]),
                "started": tuple(arguments["started"]),
                "progress": lambda share: _tell(share=share),
            },
        )
    except (KeyboardInterrupt, BrokenPipeError):
        # Nobody is left who wants it.
        return 130
    except (HoldoverError, ValueError) as error:
        _tell(error=str(error), kind=type(error).__name__)
        return 1
    for warning in told:
        _tell(warning=warning)
    return 0
