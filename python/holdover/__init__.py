"""Transport that survives links which come and go: simulate, sweep, compare, and try mechanisms of your own.

The module is a thin wrapper around Holdover's Rust libraries: scenarios, runs, sweeps and statistics are those of the program ``holdover``.

>>> import holdover
>>> s = holdover.Scenario.open("train-tunnel")
>>> r = s.run()
>>> r.flows.to_pandas()
"""

from . import _holdover, traces
from .captures import Explained, explain
from .conformance import Conformance, conformance
from .congestion import CongestionControl, SendState
from .errors import HoldoverError, Interrupted, ScenarioError
from .mechanisms import LinkEvent, Mechanism, Packet, Presence
from .papers import Claim, Paper, Verdict, paper, papers
from .runs import Run, RunVariant, open_run, run
from .scenario import Scenario, builtin_scenarios, schema
from .sweeps import Sweep, open_sweep, sweep
from .tables import Table

__version__ = _holdover.__version__

__all__ = [
    "Claim",
    "Conformance",
    "CongestionControl",
    "Explained",
    "HoldoverError",
    "Interrupted",
    "LinkEvent",
    "Mechanism",
    "Packet",
    "Paper",
    "Presence",
    "Run",
    "RunVariant",
    "Scenario",
    "ScenarioError",
    "SendState",
    "Sweep",
    "Table",
    "Verdict",
    "builtin_scenarios",
    "conformance",
    "explain",
    "open_run",
    "open_sweep",
    "paper",
    "papers",
    "run",
    "schema",
    "sweep",
    "traces",
]
