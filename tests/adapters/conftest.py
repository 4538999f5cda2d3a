"""A server that speaks a vendor's protocol, as the fixture ``service`` of a module says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.wire_server import Request, Response


@pytest.fixture
def server(service: Callable[[Request], Response]) -> Iterator[WireServer]:
    with WireServer(service) as running:
        yield running
