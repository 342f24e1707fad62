"""``pool attach``: a program that looks from outside like the agent's own, while a pooled worker serves it."""
