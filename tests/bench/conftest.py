"""A neutral upstream, up and answering."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.processes import Running, running


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Running]:
    with running("upstream", ["bench.upstream"], folder=tmp_path, core=None) as started:
        yield started
