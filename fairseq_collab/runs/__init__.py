"""A training with its scores in one folder: made, worked off, evaluated by task, read again."""
