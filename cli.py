"""cli: to be filled."""
