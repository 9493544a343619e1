"""How much of what they may use heads do use: spectra of what they score with, and ranks."""
