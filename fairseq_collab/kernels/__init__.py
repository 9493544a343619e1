"""Matrix libraries of particular processors: one swap after a model is built, undone as easily."""
