"""What a model is worth and what it costs."""
