"""One message from its acceptance to its outcome: requests, intake, runs, delegation."""
