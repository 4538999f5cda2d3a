"""Whether one call with the default size answers: questions to real documentation, asked of the MCP server's tools.

    python benchmarks/mcp_questions.py FOLDER [--index FILE] [--show]

The folder holds the documentation of Argo CD, to which ``extraction_questions.json`` and ``confidence_questions.json``
have questions. A question of the former is answered where the text that the assistant reads holds one of each group of
words that its answer must have; one of the latter where a passage of the page that answers it is among the results, not
cut down to less than its sentence. Prints for each question what a single call of ``search`` and of ``answer`` came to,
how long the texts are, and with ``--show`` the texts; then the number of questions that one call answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client
from retrieval_core import load_config, open_index
from retrieval_core_mcp import ServerSettings, create_server

OWN = Path(__file__).parent
FROM_PAGES = 5
"""How many of the questions of which only the page is known are asked beside the others."""


def questions() -> list[dict[str, Any]]:
    """Return twenty questions: fifteen with the words of their answer, and the first ones with their page."""
    worded = json.loads((OWN / "extraction_questions.json").read_text("utf-8"))["questions"]
    paged = json.loads((OWN / "confidence_questions.json").read_text("utf-8"))["argocd"]["answerable"]
    return [*worded, *paged[:FROM_PAGES]]


def is_answered(text: str, question: dict[str, Any]) -> bool:
    """Whether a text that an assistant reads holds the answer."""
    if "must" in question:
        folded = text.lower()
        return all(any(words.lower() in folded for words in group) for group in question["must"])
    return any(question["page"] in line for line in text.splitlines() if line.startswith("["))


async def asked(index: Path, *, show: bool) -> int:
    """Ask all questions, print the table, and return how many a single call answered."""
    settings = ServerSettings(
        retrieval=load_config(None, {"index": str(index)}, {}), wait_seconds=60, tools=("all",), structured=True
    )
    found = 0
    async with Client(create_server(settings)) as client:
        for question in questions():
            told: list[str] = []
            well = False
            for tool in ("search", "answer"):
                answer: Any = await client.call_tool(tool, {"query": question["question"]})
                text = answer.content[0].text
                is_well = is_answered(text, question)
                well = well or (tool == "search" and is_well)
                told.append(f"{tool} {'yes' if is_well else 'no '} ({len(text):>5})")
                if show:
                    print(text)
            found += well
            print(f"{'  '.join(told)}  {question['question']}")
    return found


def main() -> int:
    """Ask, and print."""
    parser = argparse.ArgumentParser(description="Questions to the MCP server.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--index", type=Path, help="an index of the folder, made with the local model")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        index = options.index or Path(temporary, "index.db")
        if options.index is None:
            with open_index(config=load_config(None, {"index": str(index)}, {})) as made:
                made.ingest(options.folder)
        count = len(questions())
        found = asyncio.run(asked(index, show=options.show))
    print(f"{found} of {count} answered by one search")
    return 0


if __name__ == "__main__":
    sys.exit(main())
