"""Delivery of alerts to the event stream, the terminal and webhooks."""
