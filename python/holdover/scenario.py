"""Scenarios: descriptions of runs."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from . import _holdover

__all__ = ["Scenario", "builtin_scenarios", "schema"]

_STEP = re.compile(r'"([^"]*)"|([^."]+)')


def builtin_scenarios() -> list[str]:
    """The names of the built-in scenarios, for `Scenario.open`."""
    return list(_holdover.builtin_scenarios())


def schema() -> str:
    """The JSON schema (draft 2020-12) of scenario files, as text."""
    return _holdover.schema()


class Scenario:
    """A checked scenario: every variant and every value of its sweep is valid.

    `with_` returns a changed copy, and ``s[path] = value`` replaces the content of this scenario by a changed copy, after the same
    checks as those of a file: an error raises `ScenarioError` and changes nothing.

    Examples
    --------
    >>> s = Scenario.open("train-tunnel")
    >>> s["link.radio.rate"] = "5 Mbit/s"
    >>> s["link.radio.rate"]
    '5 Mbit/s'
    """

    def __init__(self, native: _holdover.Scenario) -> None:
        self._native = native

    @classmethod
    def open(cls, file_or_name: str | os.PathLike[str]) -> Scenario:
        """Read a scenario file, or the built-in scenario of that name.

        Raises
        ------
        ScenarioError
            If neither exists, or the scenario cannot be run.
        """
        return cls(_holdover.Scenario.open(os.fspath(file_or_name)))

    @classmethod
    def parse(cls, text: str, name: str = "scenario.toml", directory: str | os.PathLike[str] | None = None) -> Scenario:
        """Read a scenario from TOML text.

        Parameters
        ----------
        text
            The scenario.
        name
            The name in messages.
        directory
            The directory of its traces.
        """
        return cls(_holdover.Scenario.parse(name, text, {}, None if directory is None else Path(directory)))

    @classmethod
    def build(
        cls, content: Mapping[str, Any], name: str = "scenario", directory: str | os.PathLike[str] | None = None
    ) -> Scenario:
        """Make a scenario from a dictionary with the structure of a scenario file.

        Quantities are texts with their unit (``"5 Mbit/s"``, ``"20 ms"``), as in a file. Places in messages refer to the TOML text of
        `to_toml`.

        Examples
        --------
        >>> s = Scenario.build({
        ...     "host": [{"name": "phone"}, {"name": "server"}],
        ...     "link": [{"name": "radio", "between": ["phone", "server"], "rate": "4 Mbit/s", "delay": "15 ms",
        ...               "queue_limit": "40 packets"}],
        ...     "flow": [{"name": "download", "from": "server", "to": "phone", "bulk": "400 kB"}],
        ...     "time_limit": "30 s",
        ... })
        """
        return cls(_holdover.Scenario.from_dict(name, dict(content), None if directory is None else Path(directory)))

    def with_(self, changes: Mapping[str, Any] | None = None, **fields: Any) -> Scenario:
        """A changed scenario. `changes` maps paths (``"link.radio.rate"``, ``"flow.*.stack.rto.min"``) to values; keywords name
        fields without dots (``seed=7``)."""
        return Scenario(self._native.with_changes(list({**(changes or {}), **fields}.items())))

    def __setitem__(self, path: str, value: Any) -> None:
        self._native = self._native.with_changes([(path, value)])

    def __getitem__(self, path: str) -> Any:
        node: Any = self.to_dict()
        for quoted, plain in _STEP.findall(path):
            node = _step(node, quoted or plain, path)
        return node

    def to_dict(self) -> dict[str, Any]:
        """The scenario as a dictionary with the structure of its file, changes included."""
        return tomllib.loads(self.to_toml())

    def to_toml(self) -> str:
        """The scenario as a file, changes included."""
        return self._native.to_toml()

    @property
    def name(self) -> str:
        """The name of the file or built-in scenario."""
        return self._native.name

    @property
    def title(self) -> str:
        """Its title; its name if it has none."""
        return self._native.title

    @property
    def description(self) -> str | None:
        """What happens in the run, and what to look for."""
        return self._native.description

    @property
    def seed(self) -> int:
        """The seed of all random numbers."""
        return self._native.seed

    @property
    def variants(self) -> list[str]:
        """The names of the variants; ``["base"]`` if the scenario has none."""
        return [name for name, _ in self._native.variants]

    def run(self, **options: Any) -> Any:
        """Run it: see `holdover.run`."""
        from .runs import run

        return run(self, **options)

    def sweep(self, **options: Any) -> Any:
        """Sweep it: see `holdover.sweep`."""
        from .sweeps import sweep

        return sweep(self, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.name, self.to_toml(), self._native.files())

    def __repr__(self) -> str:
        return f"<Scenario {self.name!r}: {self.title}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(text or '')}</td></tr>" for name, text in self._native.variants
        )
        description = f"<p>{escape(self.description)}</p>" if self.description else ""
        return (
            f"<h3>{escape(self.title)}</h3>{description}<p>Seed {self.seed}</p>"
            f"<table><thead><tr><th>variant</th><th></th></tr></thead><tbody>{rows}</tbody></table>"
            f"<details><summary>Scenario file</summary><pre>{escape(self.to_toml())}</pre></details>"
        )


def _step(node: Any, step: str, path: str) -> Any:
    if isinstance(node, list):
        if step == "*":
            raise KeyError(f"{path}: \"*\" stands for all elements, which can only be set together")
        named = [item for item in node if isinstance(item, dict) and item.get("name") == step]
        if named:
            return named[0]
        if step.isdigit() and int(step) < len(node):
            return node[int(step)]
    elif isinstance(node, dict) and step in node:
        return node[step]
    known = [item.get("name") for item in node if isinstance(item, dict)] if isinstance(node, list) else list(node)
    raise KeyError(f"{path}: there is no \"{step}\"; there are {', '.join(map(str, known))}")


def _restore(name: str, text: str, files: dict[str, str]) -> Scenario:
    return Scenario(_holdover.Scenario.parse(name, text, files, None))
