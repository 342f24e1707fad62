"""Methods of front ends that take a worker's own program for what they speak with: attach, hand over lines, leave."""

from typing import Any

from gateway.attachments.desk import AttachView
from gateway.attachments.requests import AttachmentRequest, AttachRequest, SendRequest
from gateway.caller import UNANSWERED, Caller
from gateway.service import Gateway

__all__ = ["AttachmentMethods"]


class AttachmentMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result.

    What the worker says is pushed as ``attach{attachment, taken, lines}``, what it writes to stderr as
    ``attach_words{attachment, words}``, the end as ``attach_ended{attachment, code,
    message}``, where code ``left`` says that the front end itself has asked for it.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._attachments = gateway.attachments

    async def open(self, params: AttachRequest, caller: Caller) -> AttachView:
        """Attach to a session, until the connection ends."""
        return await self._attachments.open(params, caller)

    async def send(self, params: SendRequest, caller: Caller) -> Any:
        """One line to the worker; no answer but an error: pushes tell how many lines were ``taken`` so far."""
        await self._attachments.send(params, caller)
        return UNANSWERED

    async def end(self, params: AttachmentRequest, caller: Caller) -> Any:
        """The front end says nothing more."""
        await self._attachments.finish(params.attachment, caller)
        return {}
