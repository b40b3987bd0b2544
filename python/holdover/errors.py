"""Exceptions of Holdover."""

from __future__ import annotations

__all__ = ["HoldoverError", "Interrupted", "ScenarioError"]


class HoldoverError(Exception):
    """Something failed; the message says what, and what to do about it."""


class Interrupted(HoldoverError):
    """A sweep was stopped. What was finished is kept, and the same call goes on with it."""


class ScenarioError(HoldoverError, ValueError):
    """A scenario cannot be run.

    Attributes
    ----------
    kind : str
        The sort of problem, such as ``"bad-value"`` or ``"unknown-name"``.
    field : str
        The path of the field; empty where no single field is to blame.
    found, accepted, did_you_mean, context : str or None
        What was found, what would be accepted, the accepted word that looks most like it, and the variant or point of a
        sweep that the problem shows in.
    file : str
        The file, or ``"--set"`` for a value that was set by its path.
    line, column : int
        The place in it, from 1; 0 where there is none.
    report : str
        The message with the line of the file.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "",
        field: str = "",
        found: str | None = None,
        accepted: str | None = None,
        did_you_mean: str | None = None,
        context: str | None = None,
        file: str = "",
        line: int = 0,
        column: int = 0,
        report: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.field = field
        self.found = found
        self.accepted = accepted
        self.did_you_mean = did_you_mean
        self.context = context
        self.file = file
        self.line = line
        self.column = column
        self.report = report
