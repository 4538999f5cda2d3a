"""CSV and JSON lines: a row is a document."""

from __future__ import annotations

import csv
import io
import json
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.errors import UnreadableFileError
from retrieval_core.ingest.readers import ReadOptions, read_file
from retrieval_core.ingest.readers.rows import TypeGuess, convert
from retrieval_core.ingest.report import ColumnNote, Note

if TYPE_CHECKING:
    from retrieval_core.ingest.readers.base import ParsedDocument


@pytest.fixture(name="folder")
def folder_(tmp_path: Path) -> Path:
    return tmp_path


def read(path: Path, content: str, **options: Any) -> list[ParsedDocument]:
    path.write_text(content, encoding="utf-8", newline="")
    return list(read_file(path, ReadOptions(**options)))


def reason(path: Path, content: str, **options: Any) -> str:
    with pytest.raises(UnreadableFileError) as caught:
        read(path, content, **options)
    return caught.value.reason


def test_columns_become_typed_metadata(folder: Path) -> None:
    """Numbers, booleans and missing values are found by column; codes stay text."""
    documents = read(
        folder / "a.csv",
        "id,text,title,price,stock,sale,zip,note\n"
        'a1,"First, of two",One,199.99,3,TRUE,00123,NA\n'
        "a2,Second,Two,5,NaN,false,90210,\n",
    )
    assert [document.text for document in documents] == ["First, of two", "Second"]
    assert [document.title for document in documents] == ["One", "Two"]
    assert [document.row for document in documents] == [1, 2]
    assert [document.key for document in documents] == ["a1", "a2"]
    assert {document.markup for document in documents} == {"plain"}
    first, second = (dict(document.metadata) for document in documents)
    assert first == {
        "id": "a1", "title": "One", "price": 199.99, "stock": 3, "sale": True, "zip": "00123", "note": "NA",
    }  # fmt: skip
    assert second == {
        "id": "a2", "title": "Two", "price": 5.0, "stock": None, "sale": False, "zip": "90210", "note": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("header", "text", "title"),
    [
        ("title,text,longest", "b", "a"),
        ("Product Name,Reviews,Votes", "b", "a"),
        ("kind,BODY,comments about it", "b", None),
        ("x,y,z", "cc cc cc", None),
    ],
)
def test_text_and_title_columns_are_found(folder: Path, header: str, text: str, title: str | None) -> None:
    """A well-known name wins, then the longest median text that is no title."""
    last = "12345678" if header.startswith("Product") else "cc cc cc"
    (document,) = read(folder / "a.csv", f"{header}\na,b,{last}\n")
    assert (document.text, document.title) == (text, title)


def test_the_text_column_can_be_named(folder: Path) -> None:
    """The option wins over any well-known name, and must exist."""
    content = "text,title,other,2023\na,b,c,1\n"
    (document,) = read(folder / "a.csv", content, text_column="other")
    assert (document.text, document.title) == ("c", "b")
    assert document.metadata == {"text": "a", "title": "b", "2023": 1}
    assert "'nope'" in reason(folder / "a.csv", content, text_column="nope")


def test_rows_without_text(folder: Path) -> None:
    """A title stands in for a missing text; rows with neither are no documents, but count."""
    documents = read(folder / "a.csv", "title,text\nOnly a title,\n,\n\nBoth,Text\n")
    assert [(document.row, document.text) for document in documents] == [(1, "Only a title"), (3, "Text")]
    assert reason(folder / "a.csv", "title,text\n,\n") == "it contains no text"


def test_the_only_column_is_the_text(folder: Path) -> None:
    """Even when its name is that of a title."""
    (document,) = read(folder / "a.csv", "name\nAda\n")
    assert (document.text, document.title, dict(document.metadata)) == ("Ada", None, {})


@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("a.csv", "|"), ("a.tsv", "\t")]
)
def test_delimiters(folder: Path, name: str, delimiter: str) -> None:
    """The delimiter is the one that cuts all first rows alike."""
    rows = [["text", "n"], ["a, b; c", "1"], ["d", "2"]]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    documents = read(folder / name, out.getvalue())
    assert [(document.text, document.metadata["n"]) for document in documents] == [("a, b; c", 1), ("d", 2)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("text\n", "there is no row below its header"),
        ("a,17\nb,18\n", "'17' is a value"),
        ("\n\n", "no header"),
        ('text,b\n"never closed,1\n', "quotation mark"),
        ("a,b\n1,2\n", "no column contains text"),
    ],
)
def test_broken_tables_are_reported(folder: Path, content: str, expected: str) -> None:
    """The reason says what is wrong, and where."""
    assert expected in reason(folder / "a.csv", content)


def test_a_broken_last_row_is_reported_before_the_first_document(folder: Path) -> None:
    """A file is taken whole or not at all."""
    path = folder / "a.csv"
    path.write_text("text,b\n" + "x,y\n" * 50 + 'x,"y\n')
    with pytest.raises(UnreadableFileError, match="line 52"):
        next(read_file(path))


def test_keys_must_be_unique_and_present(folder: Path) -> None:
    """Otherwise rows are told apart by their numbers."""
    assert [each.key for each in read(folder / "a.csv", "id,text\n1,a\n1,b\n")] == [None, None]
    assert [each.key for each in read(folder / "a.csv", "id,text\n1,a\n,b\n")] == [None, None]
    assert [each.key for each in read(folder / "a.csv", "_id,id,text\n1,x,a\n1,y,b\n")] == ["x", "y"]
    assert [each.key for each in read(folder / "a.jsonl", '{"_id":7,"text":"a"}\n{"_id":"8","text":"b"}')] == ["7", "8"]
    assert [each.key for each in read(folder / "a.csv", "id,text\n1.5,a\n1.50,b\n")] == ["1.5", "1.50"]
    assert [each.key for each in read(folder / "a.jsonl", '{"id":true,"text":"a"}')] == [None]


def test_a_column_without_a_name_is_the_index(folder: Path) -> None:
    """Data frames write one."""
    (document,) = read(folder / "a.csv", ",text\n0,hello\n")
    assert document.metadata == {"column 1": 0}


def test_json_rows_keep_their_types(folder: Path) -> None:
    """An object under ``metadata`` gives its fields; columns of the row win over them."""
    documents = read(
        folder / "a.ndjson",
        '{"_id": "1", "title": "T", "text": "A\\u2028B", "metadata": {"price": 5, "brand": "x", '
        '"deep": {"a": [1, null]}},'
        ' "brand": "y", "bad": NaN}\r\n\n{"text": "C"}\n',
    )
    assert [document.text for document in documents] == ["A\u2028B", "C"]
    metadata = json.loads(json.dumps(documents[0].metadata))
    assert metadata == {"_id": "1", "title": "T", "price": 5, "brand": "y", "deep": {"a": [1, None]}, "bad": None}
    assert [document.row for document in documents] == [1, 2]


def test_lone_surrogates_do_not_get_through(folder: Path) -> None:
    """They could not be written as UTF-8."""
    (document,) = read(folder / "a.jsonl", '{"text": "x\\ud800\\u0000y", "k\\ud800": 1}')
    assert document.text == "x\ufffdy"
    assert document.metadata == {"k\ufffd": 1}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
        ('{"text": "a"}\n\n[1]\n', "line 3 is not a JSON object"),
        ('{"text": ' + "[" * 100_000 + "\n", "line 1 is not JSON"),
        ("\n\n", "it contains no rows"),
        ('{"n": 1}\n', "no column contains text"),
    ],
)
def test_broken_lines_are_reported_by_number(folder: Path, content: str, expected: str) -> None:
    """The first broken line is named."""
    assert expected in reason(folder / "a.jsonl", content)


NUMBERS = st.one_of(
    st.integers(-(10**17), 10**17).map(lambda value: (str(value), value)),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: (repr(value), value)),
)


@given(st.lists(NUMBERS, min_size=1))
def test_a_column_of_numbers_keeps_every_value(cells: list[tuple[str, float]]) -> None:
    """What Python writes as a number is read as that number."""
    guess = TypeGuess()
    for text, _ in cells:
        guess.see(text)
    assert guess.type in {"integer", "number"}
    assert [convert(text, guess.type) for text, _ in cells] == [value for _, value in cells]


@given(st.lists(st.text(max_size=12)))
def test_any_column_has_a_type_that_all_its_cells_have(cells: list[str]) -> None:
    """Typing never fails, never makes a number that JSON cannot hold, and never changes text."""
    guess = TypeGuess()
    for cell in cells:
        guess.see(cell)
    for cell in cells:
        value = convert(cell, guess.type)
        assert not isinstance(value, float) or isfinite(value)
        assert not isinstance(value, str) or value == cell


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), JSON_VALUES), min_size=1, max_size=5))
def test_json_values_come_through_unchanged(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    """All fields but the text are metadata as they were."""
    path = Path(tmp_path_factory.getbasetemp()) / "any.jsonl"
    path.write_text("\n".join(json.dumps({**row, "text": "x"}) for row in rows), encoding="utf-8")
    documents = list(read_file(path))
    assert [json.loads(json.dumps(document.metadata)) for document in documents] == rows


CELLS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6))
def test_csv_texts_come_through_unchanged(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    """Quotation marks, delimiters and spaces in cells survive."""
    path = Path(tmp_path_factory.getbasetemp()) / "any.tsv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([("text", "other"), *(("x" + text, other) for text, other in rows)])
    documents = list(read_file(path))
    assert [document.text for document in documents] == ["x" + text for text, _ in rows]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_columns_may_become_other_fields(folder: Path, suffix: str) -> None:
    """Those that are named do, the rest keep their names, and no column is lost where two want one name."""
    row = {"Product Name": "N5", "Price": 9.5, "Cost": 4.5, "brand": "Northwind", "Brand Name": "N", "text": "Sturdy."}
    path = folder / f"rows.{suffix}"
    if suffix == "jsonl":
        path.write_text(json.dumps(row))
    else:
        path.write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
    names = {"Product Name": "product_name", "Price": "price", "Cost": "price", "Brand Name": "brand", "Other": "x"}
    (document,) = read_file(path, ReadOptions(columns=names))
    assert document.title == "N5"
    assert document.metadata == {
        "product_name": "N5", "price": 9.5, "Cost": 4.5, "brand": "Northwind", "Brand Name": "N",
    }  # fmt: skip


def prices(folder: Path, cells: list[str], *, name: str = "a.csv", delimiter: str = ",") -> list[Any]:
    """Return what becomes of cells in a column of prices."""
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([("text", "price"), *(("A phone.", cell) for cell in cells)])
    return [document.metadata["price"] for document in read(folder / name, out.getvalue())]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["129.99", "1,249.00"], [129.99, 1249.0]),
        (["99.5", "1,249"], [99.5, 1249]),
        (["0.125", "1,249"], [0.125, 1249]),
        (["15", "999", "1,249"], [15, 999, 1249]),
        (["1,249.00"], [1249.0]),
        (["1,249,000", "3"], [1_249_000, 3]),
        (["1249.00", "1,249.00"], [1249.0, 1249.0]),
        (["-1,249.5", "n/a"], [-1249.5, None]),
    ],
)
def test_separated_thousands_are_numbers(folder: Path, cells: list[str], expected: list[Any]) -> None:
    """Where the column leaves no doubt that the comma separates thousands."""
    found = prices(folder, cells)
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.parametrize(
    "cells",
    [
        ["1,249"],  # may be 1.249 kg
        ["1,249", "3,500"],
        ["1,249", "0,5"],
        ["1,249", "2500"],  # who writes 2500 would not write 1,249
        ["1,249", "2.500"],  # German: 1.249 and 2500
        ["1,249", "3", "2.500"],
        ["1.249,00", "3"],
        ["1,24", "3.5"],
        ["12,49,000", "3.5"],
        ["0,249", "3.5"],
        ["1,249", "1,2490", "3.5"],
        ["$1,249.00", "3.5"],
    ],
)
def test_doubtful_commas_make_text(folder: Path, cells: list[str]) -> None:
    """A decimal comma is never taken for a separator, so such a column stays as it is written."""
    assert prices(folder, cells) == cells


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ";"), ("a.tsv", "\t")])
def test_tables_that_may_have_decimal_commas(folder: Path, name: str, delimiter: str) -> None:
    """Where cells are not separated by commas, whole numbers beside them do not tell what commas mean."""
    assert prices(folder, ["15", "1,249"], name=name, delimiter=delimiter) == ["15", "1,249"]
    assert prices(folder, ["15", "1,249.00"], name=name, delimiter=delimiter) == [15, 1249.0]


GROUPED = st.one_of(
    st.integers(-(10**14), 10**14).map(lambda value: (f"{value:,}", value)),
    st.decimals(-(10**9), 10**9, places=2).map(lambda value: (f"{value:,}", float(value))),
)


@given(st.lists(GROUPED, min_size=1))
def test_what_is_written_with_separators_is_read_as_it_was_meant(cells: list[tuple[str, float]]) -> None:
    """A column of numbers in English notation is read as these numbers, or left as text; never as others."""
    guess = TypeGuess()
    for text, _ in cells:
        guess.see(text)
    if guess.type != "text":
        assert [convert(text, guess.type) for text, _ in cells] == [value for _, value in cells]
    assert guess.type != "text" or not any("." in text for text, _ in cells)


DECIMAL_COMMAS = st.decimals(-(10**6), 10**6, places=2).map(lambda value: f"{value:,}".translate({44: 46, 46: 44}))


@given(st.lists(DECIMAL_COMMAS, min_size=1))
def test_decimal_commas_are_never_read_as_separators(cells: list[str]) -> None:
    """A column of prices in German notation is text."""
    guess = TypeGuess()
    for cell in cells:
        guess.see(cell)
    assert guess.type == "text"


@pytest.mark.parametrize(
    "missing", ["", " ", "n/a", "N/A", "NA", "null", "None", "NaN", "-", "\N{EN DASH}", "\N{EM DASH}"]
)
def test_cells_that_stand_for_nothing(folder: Path, missing: str) -> None:
    """They leave a column of numbers one; in a column of words they are words."""
    assert prices(folder, ["129.99", missing, "5"]) == [129.99, None, 5]
    assert prices(folder, ["red", missing]) == ["red", missing if missing.strip() else None]


def notes_of(folder: Path, content: str, **options: Any) -> list[ColumnNote]:
    notes: list[Note] = []
    read(folder / "a.csv", content, on_note=notes.append, **options)
    return [note for note in notes if isinstance(note, ColumnNote)]


def test_a_column_that_is_nearly_one_of_numbers_is_noted(folder: Path) -> None:
    """With the table, the column, how many of its cells are numbers, and the first that is not."""
    rows = [f"A phone.,{price}" for price in [*range(9), "n/a", "unknown " * 20, *range(9), "call"]]
    (note,) = notes_of(folder, "\n".join(("text,price", *rows)))
    assert note == ColumnNote(str(folder / "a.csv"), "price", 18, 20, ("unknown " * 20)[:60], 11)
    doubtful = "\n".join(("text,price", *(f"A phone.,{price}" for price in range(1000, 1010)), 'A phone.,"1,249"'))
    (note,) = notes_of(folder, doubtful)
    assert (note.numbers, note.cells, note.example, note.row) == (10, 11, "1,249", 11)


@pytest.mark.parametrize(
    "cells",
    [
        ["1"] * 20,
        ["1"] * 17 + ["x"] * 3,
        ["10115"] * 20 + ["01067"],
        ["491234"] * 20 + ["+49 30"],
        ["x"] * 20,
        ["true"] * 20,
        [""] * 20,
    ],
)
def test_other_columns_are_not_noted(folder: Path, cells: list[str]) -> None:
    """Neither columns of numbers, nor those of words, nor codes, which are meant to be text."""
    assert notes_of(folder, "\n".join(("text,x", *(f"A phone.,{cell}" for cell in cells)))) == []


def test_text_title_and_key_are_not_noted(folder: Path) -> None:
    """These are text whatever they hold."""
    rows = [f"{row},{row},{row}" for row in range(1, 20)]
    assert notes_of(folder, "\n".join(("text,title,id", *rows, "a,b,c"))) == []
