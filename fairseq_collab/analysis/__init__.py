"""What trained heads do.  Measurements are torch only; commands load models and write files."""
