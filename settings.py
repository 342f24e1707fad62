"""settings: to be filled."""
