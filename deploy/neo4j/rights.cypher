// What a database user of the queue needs on Neo4j Enterprise or Aura, and nothing more.
//
// Community Edition has no roles: there every user may do everything, and this file does not run.
// It could not be tried on Enterprise here; tests/hostile/security/test_rights.py checks that it names what
// the statements of the project use, no more and no less, and that Neo4j can read it.
//
// 1. An administrator runs "embed-pipeline init", with --with-triggers if triggers are wanted: it
//    makes indexes, constraints and the nodes of the queue, which the user below cannot.
// 2. An administrator runs this file on the database "system", with other names for the database,
//    the label Entity and its properties if the settings name others; in backquotes (`Mein Film`)
//    what is more than ASCII letters, digits and _.
//    For another queue (EMBED_QUEUE=acme): another role, and "_acme" behind the labels of jobs, from
//    EmbedJob to EmbedCancelled, and behind EmbedAudit, EmbedBatch, EmbedPiece and EmbedPieceStaged. That user then sees no job of any other queue.
// 3. NEO4J_USERNAME and NEO4J_PASSWORD are those of the new user.
//
// A new server lets everybody run all procedures and functions, through the role PUBLIC. Take that
// away first, if nobody else counts on it:
//   REVOKE EXECUTE PROCEDURE * ON DBMS FROM PUBLIC;
//   REVOKE EXECUTE USER DEFINED FUNCTION * ON DBMS FROM PUBLIC;

CREATE ROLE embed_pipeline IF NOT EXISTS;
CREATE USER embed_pipeline IF NOT EXISTS SET PASSWORD $password CHANGE NOT REQUIRED;
GRANT ROLE embed_pipeline TO embed_pipeline;

GRANT ACCESS ON DATABASE neo4j TO embed_pipeline;
GRANT SHOW INDEX ON DATABASE neo4j TO embed_pipeline;
// Labels and properties are new to a database until they are first written.
GRANT CREATE NEW NODE LABEL ON DATABASE neo4j TO embed_pipeline;
GRANT CREATE NEW PROPERTY NAME ON DATABASE neo4j TO embed_pipeline;

// The entities: read what decides about the vector, write the vector and where it comes from.
GRANT MATCH {name, version, validTo, entityType, observations, embedding, embedding_model, embedding_hash, embedding_version, embedding_job, embedding_print, embedding_at, embedding_pieces} ON GRAPH neo4j NODES Entity TO embed_pipeline;
GRANT SET PROPERTY {embedding, embedding_model, embedding_hash, embedding_version, embedding_job, embedding_print, embedding_at, embedding_pieces, _embed_lock} ON GRAPH neo4j NODES Entity TO embed_pipeline;

// The queue is its own. A cut-over to another model makes and drops indexes: like init it is the administrator's.
GRANT MATCH {*} ON GRAPH neo4j NODES EmbedJob, EmbedPending, EmbedProcessing, EmbedCompleted, EmbedFailed, EmbedCancelled, EmbedQueue, EmbedCounters, EmbedLimiter, EmbedCoverage, EmbedAudit, EmbedBatch, EmbedAlias, EmbedSchema TO embed_pipeline;
GRANT SET PROPERTY {*} ON GRAPH neo4j NODES EmbedJob, EmbedQueue, EmbedCounters, EmbedLimiter, EmbedCoverage, EmbedAudit, EmbedBatch TO embed_pipeline;
GRANT CREATE ON GRAPH neo4j NODES EmbedJob, EmbedLimiter, EmbedCoverage, EmbedAudit, EmbedBatch TO embed_pipeline;
GRANT DELETE ON GRAPH neo4j NODES EmbedJob, EmbedAudit, EmbedBatch TO embed_pipeline;
GRANT SET LABEL EmbedPending, EmbedProcessing, EmbedCompleted, EmbedFailed, EmbedCancelled ON GRAPH neo4j TO embed_pipeline;
GRANT REMOVE LABEL EmbedPending, EmbedProcessing, EmbedCompleted, EmbedFailed, EmbedCancelled ON GRAPH neo4j TO embed_pipeline;

// Only with EMBED_PIECES=nodes: the pieces of texts, which the queue makes and removes, and where they belong.
GRANT MATCH {*} ON GRAPH neo4j NODES EmbedPiece, EmbedPieceStaged, EmbedChunk TO embed_pipeline;
GRANT MATCH {*} ON GRAPH neo4j RELATIONSHIPS FROM_DOCUMENT, NEXT_CHUNK TO embed_pipeline;
GRANT CREATE ON GRAPH neo4j NODES EmbedPiece, EmbedPieceStaged, EmbedChunk, Chunk TO embed_pipeline;
GRANT CREATE ON GRAPH neo4j RELATIONSHIPS FROM_DOCUMENT, NEXT_CHUNK TO embed_pipeline;
GRANT SET PROPERTY {*} ON GRAPH neo4j NODES EmbedPiece, EmbedPieceStaged TO embed_pipeline;
GRANT SET LABEL EmbedPiece, EmbedChunk, Chunk ON GRAPH neo4j TO embed_pipeline;
GRANT REMOVE LABEL EmbedPieceStaged ON GRAPH neo4j TO embed_pipeline;
GRANT DELETE ON GRAPH neo4j NODES EmbedPiece, EmbedPieceStaged TO embed_pipeline;
GRANT DELETE ON GRAPH neo4j RELATIONSHIPS FROM_DOCUMENT, NEXT_CHUNK TO embed_pipeline;
GRANT CREATE NEW RELATIONSHIP TYPE ON DATABASE neo4j TO embed_pipeline;

GRANT EXECUTE PROCEDURE apoc.periodic.iterate, db.create.setNodeVectorProperty, db.index.vector.queryNodes, db.labels, db.relationshipTypes, dbms.components ON DBMS TO embed_pipeline;
GRANT EXECUTE USER DEFINED FUNCTION apoc.version ON DBMS TO embed_pipeline;
