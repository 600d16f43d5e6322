"""That every row of the contract which the project claims is named by a test that proves it."""

import ast

from tests.architecture.house import TESTS, tree_of

ROWS = (
    *("R-01", "R-02", "R-03", "R-04", "R-05", "R-06", "R-07", "R-08", "R-09", "R-10"),  # servers
    *("R-11", "R-12", "R-13", "R-14", "R-15", "R-16"),  # connections
    *("R-17", "R-18", "R-19", "R-20"),  # discovery
    *("R-26", "R-27", "R-28", "R-29", "R-30"),  # routing
    *("R-31", "R-32", "R-33"),  # health
    *("R-47", "R-48", "R-49", "R-50", "R-51"),  # security
    *("R-52", "R-53", "R-54"),  # operation
)


def test_every_claimed_row_is_named_by_a_test() -> None:
    docstrings = [
        ast.get_docstring(node) or ""
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    unproven = [row for row in ROWS if not any(row in docstring for docstring in docstrings)]
    assert unproven == []
