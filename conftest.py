"""What holds for every test: how properties are searched, and that a complete run skips nothing.

A test that needs something this machine lacks (Node, a database server) skips with its reason. Where
everything is meant to be there, `TRUNKLINE_REQUIRE_ALL=1` turns each skip into a failure.
"""

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

REQUIRE_ALL = os.environ.get("TRUNKLINE_REQUIRE_ALL", "") not in ("", "0")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {report.longreprtext}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if REQUIRE_ALL and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {report.longreprtext}"
    return report
