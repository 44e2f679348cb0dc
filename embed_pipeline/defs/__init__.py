"""The Dagster definitions: thin objects over store and worker."""
