"""Engines: what starts node programs, and says which nodes there are."""
