"""Which columns of Parquet files are wanted, and whether they can be used."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isvi.core.errors import ConfigurationError, DataError, require

Chosen = dict[str, str | list[str]]
Columns = Mapping[str, str | Sequence[str]] | Sequence[str]

ADVICE = {
    "string": "Encode it as integers first",
    "dictionary": "Write the codes as an integer column (pandas: column.cat.codes), and the categories elsewhere",
    "time": "Write what the model needs of it as a number, such as hours since a date",
    "decimal": "Write it as a floating-point column",
    "nested": "Write its parts as columns of their own",
}


def checked_columns(columns: Columns | None, schema: Any, file: str) -> Chosen:
    """What the model receives, by name, as columns of the files; None stands for all."""
    if columns is None:
        chosen: Chosen = {name: name for name in schema.names}
    elif isinstance(columns, Mapping):
        chosen = {str(name): column if isinstance(column, str) else list(column) for name, column in columns.items()}
    else:
        require(
            not isinstance(columns, str),
            ConfigurationError,
            f"columns must be a dict such as {{'x': ['a', 'b'], 'y': 'c'}} or a list of names; got {columns!r}.",
        )
        chosen = {name: name for name in columns}
    require(len(chosen) > 0, DataError, f"data is empty: no columns of {file} were chosen.")
    for name, column in chosen.items():
        require(column != [], ConfigurationError, f"columns[{name!r}] is an empty list; name at least one column.")
    return chosen


def column_types(columns: Chosen, schemas: Sequence[tuple[str, Any]]) -> dict[str, np.dtype]:
    """The NumPy dtype of each column, which must be the same in every file."""
    first_file, first = schemas[0]
    counted = [Counter(schema.names) for _, schema in schemas]  # once: a file may have thousands of columns
    types: dict[str, np.dtype] = {}
    for column in columns.values():
        for name in [column] if isinstance(column, str) else column:
            for (file, schema), counts in zip(schemas, counted, strict=True):
                if counts[name] == 1 and schema.field(name).type == first.field(name).type:
                    continue
                require(
                    counts[name] == 1,
                    DataError,
                    f"{file} has no column {name!r}; it has {_listed(schema.names)}."
                    if name not in counts
                    else f"{file} has several columns called {name!r}.",
                )
                require(
                    schema.field(name).type == first.field(name).type,
                    DataError,
                    f"column {name!r} changes its type between files: {first.field(name).type} in {first_file}, "
                    f"{schema.field(name).type} in {file}. Write all files with the same types.",
                )
            types[name] = _dtype(first.field(name).type, name, first_file)
    return types


def _dtype(arrow_type: Any, name: str, file: str) -> np.dtype:
    from pyarrow import types

    if types.is_boolean(arrow_type) or types.is_integer(arrow_type) or types.is_floating(arrow_type):
        return np.dtype(arrow_type.to_pandas_dtype())
    kinds = {
        "string": types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_binary(arrow_type),
        "dictionary": types.is_dictionary(arrow_type),
        "time": types.is_temporal(arrow_type),
        "decimal": types.is_decimal(arrow_type),
        "nested": types.is_nested(arrow_type),
    }
    advice = next((ADVICE[kind] for kind, found in kinds.items() if found), "Write it as numbers")
    raise DataError(
        f"column {name!r} of {file} must hold numbers or booleans; it is of type {arrow_type}. {advice}, or choose "
        "other columns: isvi.data.Parquet(..., columns=...)."
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    return shown if len(names) <= 20 else f"{shown}, and {len(names) - 20} more"
