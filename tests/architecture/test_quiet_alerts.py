"""That an alert keeps quiet where what it watches is not in use."""

from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parents[2] / "ops" / "alerts.yml"


def test_tools_without_skills_alert_only_where_some_have_one() -> None:
    """R-52: without a classifier the share is 100 % for ever, which is no news."""
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    found = [rule["expr"] for rule in rules if "mcp_aggregator_tools_classified" in rule["expr"]]
    assert len(found) == 2
    assert all("(mcp_aggregator_tools_classified > 0)" in expression for expression in found)
