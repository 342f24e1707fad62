"""Front ends that speak with a pooled worker in the words of its own program, as if they had started it."""
