"""Retrievers of other libraries that follow a cut-over: they look at the epoch before each search.

``retrieval.graphrag`` needs the extra ``graphrag``, ``retrieval.langchain`` the extra
``langchain``; ``LiveModel`` needs neither.
"""

from embed_pipeline.retrieval.live import LiveIndex, LiveModel

__all__ = ["LiveIndex", "LiveModel"]
