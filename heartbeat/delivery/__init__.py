"""Bringing alerts to people: the event stream, the terminal, webhooks; kept until delivered, told where that fails."""
