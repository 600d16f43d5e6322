"""What is shown: nothing cut short, nothing foreign taken for a command of the terminal or for markup."""

import pytest

from trunkline.cli.screen import Column, Screen, fits_as_table, one_line

ID = "550e8400-e29b-41d4-a716-446655440000"
COLUMNS = [Column("ID"), Column("NAME"), Column("ABOUT", folds=True)]


Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def test_a_pipe_gets_one_line_a_row_however_long(capsys: Capture) -> None:
    about = "word " * 200
    Screen(as_json=False).table(COLUMNS, [(ID, "a", about), (ID, "b", None)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1] == f"{ID}  a     {about.strip()}"
    assert lines[2] == f"{ID}  b     -"


def test_in_sixty_columns_long_text_folds_and_ids_do_not(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    Screen(as_json=False).table(COLUMNS, [(ID, "a", "one two three four five six seven eight")])
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert lines[1].startswith(ID)
    assert len(lines) > 2


def test_a_row_that_does_not_fit_becomes_a_block_with_its_id_whole(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    Screen(as_json=False).table(COLUMNS, [(ID, "a-rather-long-name-of-a-server", "x"), (ID, "b", "y")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"ID     {ID}", "NAME   a-rather-long-name-of-a-server", "ABOUT  x"]
    assert lines[3] == ""


def test_a_folded_value_has_no_spaces_behind_it(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who copies it out of a terminal must not get them too."""
    monkeypatch.setenv("COLUMNS", "40")
    Screen(as_json=False).fields([("name", "alpha"), ("reaches", "one two three four five six seven eight")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines == [line.rstrip() for line in lines]
    assert lines[1].startswith("reaches  one two")


def test_foreign_text_is_neither_markup_nor_a_command_of_the_terminal(capsys: Capture) -> None:
    screen = Screen(as_json=False)
    screen.table([Column("A", folds=True)], [("[red]x[/red] \x1b[31m\u202e :smile:",)])
    screen.say("[bold]y[/bold]\x1b]0;title\x07")
    screen.fields([("label", "[/]\x9b2J")])
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "[red]x[/red] �[31m� :smile:" in text
    assert "[bold]y[/bold]" in text


def test_a_cell_is_one_line() -> None:
    assert one_line("a\n\tb\r\n c") == "a b c"
    assert one_line(None) == "-"
    assert one_line(0) == "0"


def test_with_json_nothing_else_is_on_stdout(capsys: Capture) -> None:
    screen = Screen(as_json=True)
    screen.say("words")
    screen.marked("ok", "green", "words")
    screen.json({"a": [1]})
    assert capsys.readouterr().out == '{\n  "a": [\n    1\n  ]\n}\n'


def test_wide_letters_count_by_the_room_they_take() -> None:
    columns = [Column("A"), Column("B")]
    assert fits_as_table(columns, [["日本語", "x"]], 9)
    assert not fits_as_table(columns, [["日本語", "x"]], 8)
