"""The settings file: schema, checks, problems, loading, editing."""
