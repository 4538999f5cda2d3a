"""The skill that tells an assistant when to search, when to grep, and how to cite."""

from __future__ import annotations

import json
from importlib.resources import files

OWNER = "metadata: {installed-by: retrieval-mcp setup}"
"""A line of each skill that this command wrote."""


def read_skill() -> str:
    """Return the skill as the plugin has it."""
    return files("retrieval_core_mcp").joinpath("plugin/skills/search-documents/SKILL.md").read_text("utf-8")


def skill_text(name: str, documents: str) -> str:
    """Return the skill for one server.

    Args:
        name: Of the server, which is that of the skill, too.
        documents: What is indexed, in one or two sentences.
    """
    _, head, body = read_skill().split("---\n", 2)
    description = next(line for line in head.splitlines() if line.startswith("description: "))
    text = f"{description.removeprefix('description: ')} The MCP server is called {name}. {documents}"
    lines = (f"name: {name}", f"description: {json.dumps(text, ensure_ascii=False)}", OWNER)
    return "---\n" + "\n".join(lines) + f"\n---\n{body}"
