"""What holds for all tests: the library makes no blocking call on an event loop, and no test fails for being slow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from support.blocking import blocking_calls_fail_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres_server import PostgresServer

# Drawn at random, examples only look for what is not known yet; what they find becomes an explicit one.
# Said, since where a checker sets CI, Hypothesis draws the same examples unless it is told otherwise.
settings.register_profile("random", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
# Everywhere else the same ones are drawn each time, so that what passed once passes again.
settings.register_profile("here", settings.get_profile("random"), derandomize=True)
settings.register_profile("quick", settings.get_profile("here"), max_examples=20)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "here"))


def pytest_configure(config: pytest.Config) -> None:
    """Leave out the slow tests if neither a path nor a marker is given."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.markexpr:
        config.option.markexpr = "not slow"


@pytest.fixture(autouse=True, scope="session")
def blocking_calls_fail() -> Iterator[None]:
    """Make every blocking call that the library makes on an event loop an error."""
    with blocking_calls_fail_in(["retrieval_core"]):
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests of this process; each test has a schema of its own."""
    from support.postgres_server import PostgresServer, skip_without_server

    skip_without_server()
    with PostgresServer() as server:
        yield server
