"""That the alerts for operators look at series that exist, and at the thresholds that were asked for."""

import re
from typing import Any

import pytest
import yaml
from prometheus_client import Histogram

from tests.architecture.house import DOCS, ROOT
from trunkline.model import ServerStatus
from trunkline.telemetry import Metrics

RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "ops" / "alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
THRESHOLDS = {
    "mcp_aggregator_servers_total": ("< 0.8", "< 0.5"),
    "mcp_aggregator_routing_duration_seconds_bucket": ("> 0.075", "> 0.1"),
    "mcp_aggregator_health_check_failures_total": (">= 2", ">= 3"),
    "mcp_aggregator_tools_classified": ("> 0.2", "> 0.5"),
}
"""Of the contract: warning and critical."""


def series() -> dict[str, tuple[str, ...]]:
    """Every name a rule may use, with its labels."""
    metrics = Metrics()
    found = {}
    for family in vars(metrics).values():
        if not hasattr(family, "describe"):
            continue
        (described,) = family.describe()
        labels = tuple(family._labelnames)
        if isinstance(family, Histogram):
            for part in ("bucket", "sum", "count"):
                found[f"{described.name}_{part}"] = (*labels, *(("le",) if part == "bucket" else ()))
        else:
            found[described.name + ("_total" if described.type == "counter" else "")] = labels
    return found


def names_in(expression: str) -> list[str]:
    return re.findall(r"\b(?:mcp_aggregator|trunkline)_\w+", expression)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['alert']} {rule['labels']['severity']}")
def test_a_rule_asks_for_series_and_labels_that_exist(rule: dict[str, Any]) -> None:
    """R-52: an alert on a series that nobody writes is silent for ever."""
    known = series()
    names = names_in(rule["expr"])
    assert names
    assert set(names) <= set(known)
    for name, selector in re.findall(r"(\w+)\{([^}]*)\}", rule["expr"]):
        for label, value in re.findall(r'(\w+)="([^"]*)"', selector):
            assert label in known[name]
            assert label != "status" or value in {status.value.lower() for status in ServerStatus}
    for labels in re.findall(r"by \(([^)]*)\)", rule["expr"]):
        assert set(re.split(r",\s*", labels)) <= {label for name in names for label in known[name]}
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        assert all(label in known[name] for name in names)


@pytest.mark.parametrize("name", THRESHOLDS)
def test_the_thresholds_are_those_of_the_contract(name: str) -> None:
    """R-52: a warning and a critical alert for each, no further one of the same series."""
    found = [
        (rule["labels"]["severity"], re.sub(r".*?([<>]=? [\d.]+)$", r"\1", rule["expr"]))
        for rule in RULES
        if name in names_in(rule["expr"])
    ]
    warning, critical = THRESHOLDS[name]
    assert found == [("warning", warning), ("critical", critical)]


def test_failures_are_counted_over_as_many_intervals_as_the_threshold_says() -> None:
    """R-52: two and three consecutive failures, at one check in 30 s."""
    expressions = [rule["expr"] for rule in RULES if "health_check_failures" in rule["expr"]]
    windows = [(re.findall(r"offset (\d+)s", text), text[-1]) for text in expressions]
    assert windows == [(["60"], "2"), (["90"], "3")]


def test_every_alert_is_explained() -> None:
    """R-52: the page says what to do about each."""
    page = (DOCS / "METRICS.md").read_text("utf-8").partition("## Alerts")[2]
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == len({rule["alert"] for rule in RULES})
    assert all(len(row.strip("| ").split(" | ")) == 4 for row in rows)
