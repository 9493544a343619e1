"""``fairseq-collab bench``: our models beside fairseq's, in one process, in turn."""
