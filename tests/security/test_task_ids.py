"""Ids of tasks: they open in any process with the key, for their owner alone, and not if anything changed."""

import os
import uuid

from hypothesis import given
from hypothesis import strategies as st

from trunkline.security.cipher import CredentialKeys
from trunkline.security.task_ids import LONGEST, TaskIds
from trunkline.wire.eras import header_value

SERVER = str(uuid.UUID(int=7))
OLD, NEW = os.urandom(32), os.urandom(32)


def ids(*keys: bytes) -> TaskIds:
    return TaskIds(CredentialKeys(keys or (OLD,)))


def sealed(task_id: str = "786512e2-9e0d-44bd-8f29-789f320fe840", owner: str = "k1") -> str:
    text = ids().seal(SERVER, task_id, owner=owner)
    assert text is not None
    return text


@given(st.text(max_size=200))
def test_any_id_of_a_server_comes_back_from_another_process(task_id: str) -> None:
    text = sealed(task_id)
    assert ids().unseal(text, owner="k1") == (SERVER, task_id)
    assert header_value(text) == text


def test_one_task_has_one_id_for_each_owner() -> None:
    assert sealed() == sealed()
    assert len({sealed(), sealed("another"), sealed(owner="k2")}) == 3
    assert "786512e2" not in sealed()


def test_it_opens_for_its_owner_alone() -> None:
    assert ids().unseal(sealed(), owner="k2") is None
    assert ids().unseal(sealed(), owner="") is None


def test_what_was_changed_anywhere_does_not_open() -> None:
    text = sealed()
    for place in range(len(text)):
        for other in ("A", "_", ".", "é", ""):
            mangled = text[:place] + other + text[place + 1 :]
            assert mangled == text or ids().unseal(mangled, owner="k1") is None, mangled


@given(st.text(max_size=300))
def test_any_text_is_judged(text: str) -> None:
    assert ids().unseal(text, owner="k1") is None


def test_an_old_key_still_opens_and_an_unknown_one_does_not() -> None:
    assert ids(NEW, OLD).unseal(sealed(), owner="k1") is not None
    assert ids(NEW).unseal(sealed(), owner="k1") is None


def test_an_id_that_could_not_travel_is_not_given() -> None:
    assert ids().seal(SERVER, "x" * LONGEST, owner="k1") is None
    assert ids().unseal("t1." + "x" * LONGEST, owner="k1") is None
