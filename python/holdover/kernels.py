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
from typing import Any, TextIO

from . import _holdover
from .errors import HoldoverError
from .scenario import Scenario

__all__: list[str] = []

#: How long the process may take to remove what it has begun after it was told to stop.
_PATIENCE_S = 30.0

#: What the process may raise beside what is of this module; anything else is a defect, whose traceback it prints.
_RAISED = {error.__name__: error for error in (ValueError, TypeError, OverflowError, KeyError)}


def run_apart(scenario: Scenario, arguments: dict[str, Any], progress: Callable[[float], None] | None) -> None:
    """Has another process make a run of `scenario` with these arguments of `_holdover.run`."""
    task = {
        "scenario": [scenario.name, scenario.to_toml(), scenario._native.files()],
        "arguments": {**arguments, "out": str(Path(arguments["out"]).absolute())},
    }
    # The child uses the module path of this process. Ctrl-C is for this process, which passes it on.
    begin = f"import sys; sys.path[:] = {sys.path!r}; from holdover.kernels import _main; sys.exit(_main())"
    process = subprocess.Popen(
        [sys.executable, "-c", begin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None and process.stdout is not None
    told: list[str] = []
    try:
        try:
            with process.stdin as stdin:
                json.dump(task, stdin)
        except BrokenPipeError:
            # The reason for its end is reported below.
            pass
        for line in process.stdout:
            what = json.loads(line)
            if "warnings" in what:
                told = what["warnings"]
            elif "error" in what:
                raise _RAISED.get(what["kind"], HoldoverError)(what["error"])
            elif progress is not None:
                progress(what["share"])
        if process.wait() != 0:
            raise HoldoverError(f"the process of the run has ended early, with status {process.returncode}")
    finally:
        _end(process)
    for warning in told:
        warnings.warn(warning, stacklevel=3)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process that is still there: what it tells next has no reader, and a signal comes sooner."""
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _main() -> int:
    """Makes the run that is described on standard input, and tells of it on standard output, a JSON object a line."""
    # A process that ignores Ctrl-C, such as one in the background of a shell, passes that on to its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = _only_for_us()

    def tell(**what: Any) -> None:
        print(json.dumps(what), file=out, flush=True)

    task = json.load(sys.stdin)
    name, text, files = task["scenario"]
    arguments = task["arguments"]
    # JSON has neither paths nor tuples.
    arguments["out"] = Path(arguments["out"])
    arguments["kernels"], arguments["started"] = tuple(arguments["kernels"]), tuple(arguments["started"])
    try:
        scenario = _holdover.Scenario.parse(name, text, files, None)
        tell(warnings=_holdover.run(scenario, **arguments, progress=lambda share: tell(share=share)))
    except (KeyboardInterrupt, BrokenPipeError):
        # No caller waits for it.
        return 130
    except (HoldoverError, *_RAISED.values()) as error:
        # The caller interrupts this process once it has read the error.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        tell(error=str(error), kind=type(error).__name__)
        return 1
    return 0


def _only_for_us() -> TextIO:
    """Standard output, which whatever else prints then finds to be standard error."""
    ours = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return ours
