"""What assistants read to find answers: ``python -m benchmarks agents [QUESTIONS=FOLDER ...] [--beir FOLDER]``.

Indexes each folder with the default settings and prints ``retrieval savings`` for its questions, see
``retrieval_core_mcp.savings``. ``--beir`` makes both of a collection, such as a part of HotpotQA: each document becomes
a file of Markdown, and a question is answered once the beginnings of all its relevant documents were seen.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from retrieval_core import load_config, open_index
from retrieval_core.evaluate import load_collection
from retrieval_core_mcp.savings import run_savings

BEGINNING, QUESTIONS = 60, 100
"""Characters of a relevant document to be seen, and questions of a collection."""


def write_collection(collection: Path, folder: Path) -> Path:
    """Write a collection as files, and return the path of its questions."""
    given, pages = load_collection(collection), folder / "pages"
    pages.mkdir()
    texts = {document.id: document.text.strip() for document in given.documents()}
    titles = {document.id: document.title or document.id for document in given.documents()}
    names = {name: f"{number}.md" for number, name in enumerate(texts)}
    for name, text in texts.items():
        (pages / names[name]).write_text(f"# {titles[name]}\n\n{text}\n", "utf-8")
    rows: list[str] = []
    for query, grades in sorted(given.judgements.items())[:QUESTIONS]:
        relevant = [name for name, grade in grades.items() if grade > 0 and texts.get(name)]
        gold = [{"path": names[name], "contains": texts[name][:BEGINNING]} for name in relevant]
        rows.append(json.dumps({"question": given.queries[query], "gold": gold}))
    questions = folder / "questions.jsonl"
    questions.write_text("\n".join(rows), "utf-8")
    return questions


def print_savings(name: str, questions: Path, folder: Path, index: Path | None, *, as_json: bool) -> None:
    """Print the report of one set of questions."""
    print(f"\n{name}", flush=True)
    with TemporaryDirectory(prefix="benchmark-agents-") as temporary:
        place = index or Path(temporary, "index.db")
        if index is None:
            with open_index(place) as made:
                made.ingest(folder)
        run_savings(lambda: load_config(None, {"index": str(place)}, {}), questions, folder, as_json=as_json)


def main(argv: list[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks agents", description="What assistants read.")
    parser.add_argument(
        "sets", nargs="*", metavar="QUESTIONS=FOLDER", help="questions and the documents they are about"
    )
    parser.add_argument("--beir", action="append", default=[], type=Path, metavar="FOLDER", help="a collection")
    parser.add_argument("--index", type=Path, help="an index of the only folder, made before")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    for pair in options.sets:
        questions, _, folder = pair.partition("=")
        print_savings(questions, Path(questions), Path(folder), options.index, as_json=options.json)
    for collection in options.beir:
        with TemporaryDirectory(prefix="benchmark-agents-") as temporary:
            questions = write_collection(collection, Path(temporary))
            print_savings(collection.name, questions, Path(temporary, "pages"), None, as_json=options.json)
    return 0
