"""Marks of tests that need an extra."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

HAS_RE2 = find_spec("re2") is not None
needs_tokenizer = pytest.mark.skipif(
    find_spec("tokenizers") is None, reason="contexts count tokens, for which the extra 'local' is not installed"
)
