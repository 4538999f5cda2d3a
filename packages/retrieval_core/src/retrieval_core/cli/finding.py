"""What ``retrieval doctor`` finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``missing`` is optional and absent, ``wrong`` has to be mended."""

    subject: str
    verdict: Literal["ok", "missing", "wrong"]
    detail: str
