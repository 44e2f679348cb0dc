"""LlamaIndex's Neo4jVectorStore adds, deletes or searches."""
# pyright: reportMissingImports=false

from asked import ASKED, answer
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery
from llama_index.vector_stores.neo4jvector import Neo4jVectorStore

username, password = ASKED["auth"]
store = Neo4jVectorStore(
    username,
    password,
    ASKED["uri"],
    embedding_dimension=len(ASKED["vector"]),
    database=ASKED["database"],
)
if ASKED["action"] == "write":
    for key in ASKED["deleted"]:
        store.delete(f"of {key}")
    nodes = [
        TextNode(
            id_=key,
            text=text,
            embedding=ASKED["vector"],
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"of {key}")},
        )
        for key, text in ASKED["texts"].items()
    ]
    answer(store.add(nodes))
else:
    found = store.query(VectorStoreQuery(query_embedding=ASKED["vector"], similarity_top_k=1))
    answer([node.text for node in found.nodes or []])
