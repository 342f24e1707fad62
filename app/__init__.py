"""One supervisor process: its parts, its log, its console."""
