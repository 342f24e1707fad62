"""Worker processes: dialect, process lifecycle, client."""
