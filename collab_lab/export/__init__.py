"""Trained models for other engines, exactly."""
