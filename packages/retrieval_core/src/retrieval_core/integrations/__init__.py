"""An index in other frameworks: a function for agents, and a retriever for LangChain and for Haystack.

:func:`as_tool` needs no framework. :mod:`retrieval_core.integrations.langchain` needs the extra ``langchain``, and
:mod:`retrieval_core.integrations.haystack` the extra ``haystack``.
"""

from retrieval_core.integrations.tools import as_tool

__all__ = ["as_tool"]
