"""Bringing alerts to people: the event stream, the terminal, webhooks; kept until delivered, told where they cannot be.

>>> courier = await open_courier(documents, stream, channels={"webhook": open_webhooks(settings, os.environ)}, ...)
>>> await nursery.start(courier.run)
>>> courier.accept(Alert(id=..., agent=..., session=..., text=..., reason=..., ts=time.time(), target="webhook:ops"))
"""

from heartbeat.delivery.channel import Alert, Channel, DeliveryFailed, EventStream, Outlet
from heartbeat.delivery.courier import Courier, open_courier
from heartbeat.delivery.records import Statistics
from heartbeat.delivery.settings import DeliverySettings, WebhookSettings
from heartbeat.delivery.stdout import StdoutOutlet
from heartbeat.delivery.targets import target_problem
from heartbeat.delivery.webhook import open_webhooks

__all__ = [
    "Alert",
    "Channel",
    "Courier",
    "DeliveryFailed",
    "DeliverySettings",
    "EventStream",
    "Outlet",
    "Statistics",
    "StdoutOutlet",
    "WebhookSettings",
    "open_courier",
    "open_webhooks",
    "target_problem",
]
