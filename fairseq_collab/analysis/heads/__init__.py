"""What the heads of a trained model do: where they look, what for, and how much it matters."""
