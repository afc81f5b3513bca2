"""Rows of a benchmark's table by name: OPERATOR/WHAT, or patterns of it."""

import fnmatch

from .program import Failure


def chosen(rows, patterns, table):
    """The rows that a pattern fits, all without patterns; a pattern without `/` is of operators.

    A row is a tuple that begins with its name. `table` says where the names are, for an error.
    """
    for pattern in patterns:
        if not any(fits(row[0], pattern) for row in rows):
            raise Failure(f"no row of {table} is called {pattern}; --list prints them")
    return [r for r in rows if not patterns or any(fits(r[0], p) for p in patterns)]


def fits(name, pattern):
    whole = pattern if "/" in pattern else f"{pattern}/*"
    return fnmatch.fnmatchcase(name, whole)
