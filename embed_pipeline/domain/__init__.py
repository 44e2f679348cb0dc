"""The rules of the queue, free of any database, provider or orchestrator."""
