"""What runs on a node: one program that starts workers there, and its guard."""
