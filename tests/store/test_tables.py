from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect

from trunkline.store.tables import ServerId, UtcTime, Words

DIALECTS: list[Dialect] = [sqlite.dialect(), postgresql.dialect()]  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_times_are_utc_at_rest_and_aware_on_both_sides(dialect: Dialect) -> None:
    noon = datetime(2026, 11, 19, 12, tzinfo=UTC)
    stored = UtcTime().process_bind_param(noon.astimezone(timezone(timedelta(hours=5))), dialect)
    assert stored is not None
    assert stored.isoformat() == noon.isoformat()
    for read in (noon, noon.replace(tzinfo=None), noon.astimezone(timezone(timedelta(hours=-3)))):
        assert str(UtcTime().process_result_value(read, dialect)) == "2026-11-19 12:00:00+00:00"


def test_a_time_without_a_zone_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        UtcTime().process_bind_param(datetime(2026, 11, 19), DIALECTS[0])


def test_only_what_no_database_takes_is_replaced_in_text() -> None:
    fine = "\ufefftab\t newline\n ünïcödé 🚫 \x01"
    assert Words().process_bind_param(fine, DIALECTS[0]) == fine
    assert Words().process_bind_param("a\x00b\ud800c", DIALECTS[0]) == "a\ufffdb?c"


def test_a_server_id_that_is_none_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="UUID"):
        ServerId().process_bind_param("s1", DIALECTS[0])
