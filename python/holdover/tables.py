"""Tables in Arrow's memory format."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from . import _holdover

__all__ = ["Table"]


class Table:
    """A table in Arrow's memory format.

    It has the Arrow PyCapsule interface, so that ``pyarrow.table(t)``, ``polars.from_arrow(t)`` or ``duckdb`` accept it without
    copies. `to_pandas` and `to_arrow` need pyarrow.
    """

    def __init__(self, native: _holdover.Table) -> None:
        self._native = native

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._native.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return len(self._native)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, which end in the unit: ``_s`` seconds, ``_bps`` bit/s, ``_bytes``, ``_share`` 0 to 1."""
        return self._native.column_names

    def __getitem__(self, name: str) -> list[Any]:
        """A column as a list, with None where it does not apply."""
        return self._native.column(name)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows one by one, as dictionaries from the names of columns to values."""
        names = self.column_names
        columns = [self[name] for name in names]
        return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))

    def to_arrow(self) -> Any:
        """As a ``pyarrow.Table``, without copies."""
        import pyarrow

        return pyarrow.table(self)

    def to_pandas(self) -> Any:
        """As a ``pandas.DataFrame``."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        return f"<Table of {len(self)} rows: {', '.join(self.column_names)}>"

    def _repr_html_(self, rows: int = 20) -> str:
        columns = {name: self._native.column(name, rows) for name in self.column_names}
        shown = [name for name, values in columns.items() if any(value is not None for value in values)]
        head = "".join(f"<th>{escape(name)}</th>" for name in shown)
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(columns[name][row])}</td>" for name in shown) + "</tr>"
            for row in range(min(rows, len(self)))
        )
        more = f"<p>{len(self) - rows} rows more</p>" if len(self) > rows else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return escape(f"{value:.6g}" if isinstance(value, float) else str(value))
