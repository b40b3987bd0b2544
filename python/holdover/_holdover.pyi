from collections.abc import Callable
from pathlib import Path
from typing import Any

__version__: str

class Scenario:
    @staticmethod
    def open(file_or_name: str) -> Scenario: ...
    @staticmethod
    def parse(name: str, text: str, files: dict[str, str], directory: Path | None) -> Scenario: ...
    @staticmethod
    def from_dict(name: str, content: dict[str, Any], directory: Path | None) -> Scenario: ...
    def with_changes(self, changes: list[tuple[str, Any]]) -> Scenario: ...
    def with_texts(self, changes: list[str]) -> Scenario: ...
    def to_toml(self) -> str: ...
    def files(self) -> dict[str, str]: ...
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def description(self) -> str | None: ...
    @property
    def seed(self) -> int: ...
    @property
    def has_sweep(self) -> bool: ...
    @property
    def variants(self) -> list[tuple[str, str | None]]: ...

class Table:
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def __len__(self) -> int: ...
    @property
    def column_names(self) -> list[str]: ...
    @property
    def types(self) -> list[tuple[str, str]]: ...
    def column(self, name: str, rows: int | None = None) -> list[Any]: ...

class Packet:
    """A packet. Numbers are those on the wire; what a packet does not have (it is no TCP segment, or has no such option) is None.

    Setting a TCP field of a packet without a TCP segment raises TypeError.
    """

    @staticmethod
    def pure_ack(
        src: str,
        src_port: int,
        dst: str,
        dst_port: int,
        *,
        seq: int,
        ack: int,
        window: int,
        timestamps: tuple[int, int] | None = None,
        ttl: int = 64,
        traffic_class: int = 0,
    ) -> Packet:
        """An ACK without data, to send."""
    def copy(self) -> Packet: ...
    src: str
    dst: str
    ttl: int
    traffic_class: int
    length: int
    is_tcp: bool
    is_pure_ack: bool
    src_port: int | None
    dst_port: int | None
    seq: int | None
    seq_len: int | None
    payload_length: int | None
    ack: int | None
    flags: str | None
    window: int | None
    window_scale: int | None
    mss: int | None
    timestamps: tuple[int, int] | None
    sack: list[tuple[int, int]] | None

class SweepDriver:
    def __init__(self, scenario: Scenario, out: Path) -> None: ...
    def next(self, most: int) -> list[tuple[int, int]]: ...
    def take(self, rows: list[str]) -> None: ...
    def progress(self) -> tuple[int, int]: ...
    def is_complete(self) -> bool: ...
    def finish(self, started: tuple[str, list[str]]) -> SweepFiles: ...

class SweepFiles:
    name: str
    count: tuple[int, int]

    def runs(self) -> Table: ...
    def points(self) -> Table: ...
    def tests(self) -> Table | None: ...

class SweepWorker:
    def __init__(self, scenario: Scenario) -> None: ...
    def make(self, units: list[tuple[int, int]]) -> list[str]: ...

def builtin_scenarios() -> list[str]: ...
def schema() -> str: ...
def run(
    scenario: Scenario,
    out: Path,
    force: bool,
    variants: list[str] | None,
    captures: bool,
    report: bool,
    jobs: int,
    mechanisms: list[tuple[str | None, str, Callable[[], Any]]],
    congestion: list[tuple[str | None, str, Callable[[], Any]]],
    exports: list[str],
    kernels: tuple[bool, int, list[str], str | None] | None,
    progress: Callable[[float], None] | None,
    started: tuple[str, list[str]],
) -> list[str]: ...
def read_flows(path: Path) -> Table: ...
def read_samples(path: Path) -> Table: ...
def read_events(path: Path) -> Table: ...
def sweep(
    scenario: Scenario,
    out: Path,
    jobs: int,
    progress: Callable[[int, int], None] | None,
    started: tuple[str, list[str]],
) -> SweepFiles: ...
def papers() -> list[tuple[str, str, str, list[tuple[str, str | None]], list[tuple[str, str, str]]]]: ...
def paper_scenario(paper: str, scenario: str) -> Scenario: ...
def reproduce(
    paper: str,
    experiments: list[str] | None,
    out: Path,
    jobs: int,
    progress: Callable[[str, int, int], None] | None,
) -> list[tuple[str, str, str, str, str]]: ...

class SendState:
    """What a congestion control sees of its connection. ``cwnd`` and ``ssthresh`` can be set, in segments."""

    cwnd: int
    ssthresh: int | None
    @property
    def acked(self) -> int: ...
    @property
    def bytes_acked(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def mss(self) -> int: ...
    @property
    def srtt(self) -> int | None: ...
    @property
    def min_rtt(self) -> int | None: ...
    @property
    def state(self) -> str: ...
    @property
    def previous_state(self) -> str: ...

def explain(path: Path, given: list[tuple[float, float]], only_given: bool) -> list[dict[str, Any]]: ...
def link_trace(path: Path, interval_nanos: int) -> str: ...
def fit(
    paper: str,
    settings: int | None,
    runs: int | None,
    out: Path,
    jobs: int,
    progress: Callable[[str, int, int], None] | None,
) -> str: ...
