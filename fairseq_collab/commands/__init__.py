"""``fairseq-collab COMMAND``: one thin module each; option parsers live here only."""
