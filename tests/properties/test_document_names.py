"""Names of files, whatever folders are indexed in whatever order."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from retrieval_core import RetrievalConfig, open_index

FOLDERS = ("", "docs", "docs/sub", "a", "a/docs", "a/docs/sub", "project", "project/docs", "project/docs/sub")
FILES = tuple(f"{folder}/{name}".lstrip("/") for folder in FOLDERS for name in ("x.md", "y.md"))
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(FILES)),
        st.tuples(st.just("delete"), st.sampled_from(FILES)),
        st.tuples(st.just("index"), st.sampled_from((*FOLDERS, *FILES))),
    ),
    min_size=3,
    max_size=14,
)


@given(ACTIONS)
def test_every_file_has_one_name_that_stays(actions: list[tuple[str, str]]) -> None:
    """Names are unique, lead to their files, show no path upwards, and go with the file only."""
    with TemporaryDirectory() as folder:
        top = Path(folder).resolve()
        (top / "project").mkdir()
        settings = {"index": str(top / "project/index.db"), "store": {"kind": "memory"}, "embedder": {"kind": "none"}}
        with open_index(config=RetrievalConfig.model_validate(settings)) as index:

            def named() -> dict[Path, str]:
                names = [document.id for document in index.documents()]
                paths = {index.path_of(name): name for name in names}
                assert len(paths) == len(names)
                return paths

            for action, place in (*actions, ("index", "")):
                path = top / place
                if action == "write":
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(f"The ferry {place}.")
                elif action == "delete":
                    path.unlink(missing_ok=True)
                elif path.exists():
                    before = named()
                    index.ingest(path)
                    after = named()
                    assert not any(name.startswith(("..", "/")) for name in after.values())
                    assert all(after[each] == name for each, name in before.items() if each in after)
            assert {path.resolve() for path in named()} == set(top.rglob("*.md"))
