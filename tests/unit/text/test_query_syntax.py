from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.text.query_syntax import FieldValue, parse_query

signs = st.lists(st.sampled_from(('"', "-", ":", " ", "a b", "-word", "path:", "brand:Acme", "?", "\u201c", "x")))


@given(text=st.text() | signs.map("".join))
def test_no_text_is_an_error_and_without_syntax_it_stays_as_it_is(text: str) -> None:
    parsed = parse_query(text)
    if not parsed:
        assert parsed.text == text
        assert parsed.summary() == ""
    assert any(map(str.isalnum, parsed.text)) or not parsed.required


@pytest.mark.parametrize(
    "text",
    [
        'an "unbalanced quote',
        "a lone - minus",
        "foo:bar where foo is no field",
        r"C:\dir\file.txt",
        "see http://example.com/x?y",
        "std::vector push_back",
        "at 10:30",
        "what does --flag do",
        "temperature of -1 degrees",
        "-helm",
        "ls -la",
        "git commit -m",
        "tar -xzf archive",
        "-helm sync waves",
        "-Xmx of the heap",
        "sync -helm waves",
        "kubectl -n argocd get pods -watch",
        "find . -name main.py -type file",
        'what does "sync failed" mean?',
        'level=error msg="failed to sync" app=foo',
        '{"kind": "Pod", "name": "x"}',
        'server.insecure: "true"',
        'print("hello world")',
        'say "" now',
        "non-fatal state-of-the-art",
        "x = -value",
        " ".join(f'"{number}"' for number in range(20)),
    ],
)
def test_code_commands_log_lines_and_questions_are_text(text: str) -> None:
    assert not parse_query(text, ())


@pytest.mark.parametrize(
    ("text", "left", "required", "excluded"),
    [
        ('sync waves "app of apps" -helm', "sync waves app of apps", ("app of apps",), ("helm",)),
        ("\u201capp  of apps\u201d, hooks", "app of apps, hooks", ("app of apps",), ()),
        ('hooks -"app of apps" -"go"', "hooks", (), ("app of apps", "go")),
        ("how do hooks run? -helm", "how do hooks run?", (), ("helm",)),
    ],
)
def test_phrases_and_exclusions(text: str, left: str, required: tuple[str, ...], excluded: tuple[str, ...]) -> None:
    parsed = parse_query(text, ())
    assert (parsed.text, parsed.required, parsed.excluded) == (left, required, excluded)


def test_one_line_says_what_was_understood() -> None:
    parsed = parse_query('hooks "a b" path:docs/* brand:"Big Co" -path:*.py -helm', {("brand", "Big Co")})
    assert parsed.summary() == (
        'required: "a b" \u00b7 excluded: helm \u00b7 path: docs/*, not *.py \u00b7 field: brand:"Big Co"'
    )
    assert FieldValue("path", "*.py", is_excluded=True) in parsed.conditions
