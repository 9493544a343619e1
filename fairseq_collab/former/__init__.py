"""Former names of commands, for ``python -m`` and one release longer."""
