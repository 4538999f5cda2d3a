"""``python -m retrieval_core.cli`` is the command ``retrieval``."""

from retrieval_core.cli import main

main(prog_name="retrieval")
