"""``retrieval verify``: compare the index with its documents."""

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
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Verify N random documents.  [default: all]")
@click.option("--seed", type=int, metavar="N", help="Draw the same sample again with this seed.")
@click.option("--repair", is_flag=True, help="Repair differences, then verify again.")
@index_options
def verify_command(*, sample: int | None, seed: int | None, repair: bool, given: Given) -> None:
    """Verify that the index is undamaged and matches its files.

    It verifies text, fields, vectors and postings of each chunk, and files that changed. Exit codes: 0 no differences,
    1 differences, 2 no differences, but some chunks can't be verified.
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
