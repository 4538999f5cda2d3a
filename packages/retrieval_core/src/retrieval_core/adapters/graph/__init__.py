"""A small knowledge graph: facts as triples, found by the names in a question, leading to chunks that state them."""

from retrieval_core.adapters.graph.knowledge import Fact, Facts, KnowledgeGraph, Triple
from retrieval_core.adapters.graph.translator import GraphFiles, GraphQueryTranslator

__all__ = ["Fact", "Facts", "GraphFiles", "GraphQueryTranslator", "KnowledgeGraph", "Triple"]
