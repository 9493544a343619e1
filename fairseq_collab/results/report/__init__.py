"""``fairseq-collab report``: finished runs as one self-contained page, and its numbers as JSON."""
