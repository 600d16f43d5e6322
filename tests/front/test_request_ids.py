import uuid

from trunkline.front.entrance import RequestIds


def test_a_request_without_an_id_gets_a_random_uuid() -> None:
    ids = RequestIds()
    made = [ids.new().decode() for _ in range(1000)]
    assert len(set(made)) == 1000
    for text in made:
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, text)
