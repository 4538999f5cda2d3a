"""LangChain's own tests of retrievers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("langchain_tests", reason="langchain-tests is not installed; see `nox -s frameworks`")

from langchain_tests.integration_tests import RetrieversIntegrationTests

from retrieval_core.integrations.langchain import RetrievalCoreRetriever
from support.frameworks import QUERY

if TYPE_CHECKING:
    from langchain_core.retrievers import BaseRetriever

    from retrieval_core import Index


class TestRetrievalCoreRetriever(RetrieversIntegrationTests):
    """The number of documents as ``k``, synchronous and asynchronous calls."""

    @pytest.fixture(autouse=True)
    def use(self, index: Index) -> None:
        """Search three notes."""
        self.index = index

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return RetrievalCoreRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"index": self.index}

    @property
    def retriever_query_example(self) -> str:
        return QUERY
