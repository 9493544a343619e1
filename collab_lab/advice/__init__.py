"""Find a smaller model that meets a cache or size target at the lowest loss of quality."""
