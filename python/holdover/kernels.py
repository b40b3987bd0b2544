"""Runs on this machine's kernel, each in a process of its own.

Only a process with a single thread can create network namespaces, and they end with it. A new interpreter therefore makes the run, and the
calling one, with all its threads, stays in its namespaces.
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

#: How long the process may take to remove its files after a request to stop.
_PATIENCE_S = 30.0

#: The exceptions that the process may raise besides those of this module; any other is a defect, whose traceback it prints.
_RAISED = {error.__name__: error for error in (ValueError, TypeError, OverflowError, KeyError)}


def run_apart(scenario: Scenario, arguments: dict[str, Any], progress: Callable[[float], None] | None) -> None:
    """Makes a run of `scenario` with these arguments of `_holdover.run` in another process."""
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
    collected: list[str] = []
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
                collected = what["warnings"]
            elif "error" in what:
                raise _RAISED.get(what["kind"], HoldoverError)(what["error"])
            elif progress is not None:
                progress(what["share"])
        if process.wait() != 0:
            raise HoldoverError(f"the process of the run has ended early, with status {process.returncode}")
    finally:
        _end(process)
    for warning in collected:
        warnings.warn(warning, stacklevel=3)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process that is still running: its next output has no reader, and a signal ends it sooner."""
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
    """Makes the run that is described on standard input, and reports on standard output, one JSON object a line."""
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
    """Returns standard output for this module alone; all other output goes to standard error."""
    ours = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return ours
