"""A checkpoint for other engines: exact, or refused."""
