"""Several indexes, searched as one."""

from retrieval_core.federation.index import FederatedIndex
from retrieval_core.federation.opening import open_indexes

__all__ = ["FederatedIndex", "open_indexes"]
