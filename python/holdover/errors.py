"""Exceptions of Holdover."""

from __future__ import annotations

__all__ = ["HoldoverError", "Interrupted", "ScenarioError"]


class HoldoverError(Exception):
    """An operation failed; the message describes the failure and a remedy."""


class Interrupted(HoldoverError):
    """A sweep was stopped. Completed runs are kept, and the same call continues with them."""


class ScenarioError(HoldoverError, ValueError):
    """A scenario cannot be run.

    Attributes
    ----------
    kind : str
        The kind of error, such as ``"bad-value"`` or ``"unknown-name"``.
    field : str
        The path of the field; empty if the error concerns no single field.
    found, accepted, did_you_mean, context : str or None
        The value found, the accepted values, the most similar accepted word, and the variant or point of a sweep with the
        error.
    file : str
        The file, or ``"--set"`` for a value that was set by its path.
    line, column : int
        The place in the file, from 1; 0 if there is none.
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
