"""``retrieval verify``: whether what is stored is what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from retrieval_core.cli.common import index_options, print_json
from retrieval_core.cli.process import FAILURE

if TYPE_CHECKING:
    from retrieval_core.cli.common import Given

UNVERIFIABLE = 2
"""Nothing differs, and for some chunks there is nothing to compare with."""


@click.command("verify")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Compare N documents drawn at random, not all.")
@click.option("--seed", type=int, metavar="N", help="Draw the same documents as the last time with this number.")
@click.option("--repair", is_flag=True, help="Repair differences only, then compare again.")
@index_options
def verify_command(*, sample: int | None, seed: int | None, repair: bool, given: Given) -> None:
    """Check everything that is stored for damage.

    Checks text, fields, vectors and postings of each chunk, and each document with its file if that has changed. Ends
    with 0 if nothing differs, 1 if anything does, and 2 if nothing does but something could not be compared.
    """
    from retrieval_core.cli.render import print_integrity  # noqa: PLC0415 - help and completion need none of this
    from retrieval_core.index.open import open_index  # noqa: PLC0415
    from retrieval_core.index.serialization import integrity_to_json  # noqa: PLC0415

    with open_index(config=given.config()) as index:
        report = index.check_integrity(sample=sample, seed=seed, repair=repair)
    if given.as_json:
        print_json(integrity_to_json(report))
    else:
        print_integrity(report)
    if code := {"clean": 0, "mismatch": FAILURE, "unverifiable": UNVERIFIABLE}[report.verdict]:
        raise SystemExit(code)
