"""The content blocks of a prompt, and what the transcript keeps of it. Pure."""

from typing import Any, Literal

from errors import UsageError
from rpc.acp.agent_record import AcpAgentRecord
from rpc.acp.conversation import ANSWER_MARK, EARLIER_MARK, MAX_EARLIER_BYTES, NOTE_MARK, AcpConversation
from rpc.acp.options import AcpOptions
from rpc.dialect import JournalWrite
from wire.entries import (
    FORMAT_VERSION,
    ContentBlock,
    ImageBlock,
    MessageOrigin,
    ProcessMark,
    SessionHeader,
    TextBlock,
    TranscriptMessage,
)
from wire.messages import ImageContent, PromptParams
from wire.run_text import answer_instructions

_GAP = "\n\n"
"""At the end of what comes before a prompt: some agents join the blocks with nothing between them."""


def check_prompt(params: PromptParams, record: AcpAgentRecord) -> None:
    """Raises UsageError for what an ACP agent cannot be given."""
    if params.client_tools or params.tool_results:
        raise UsageError("an ACP agent takes no tools from its client", worker_code="unsupported")
    check_images(params.images, record)


def check_images(images: list[ImageContent], record: AcpAgentRecord) -> None:
    """Raises UsageError for images where the agent takes none."""
    if images and not record.images:
        raise UsageError("the agent takes no images", worker_code="unsupported")


def prompt_blocks(
    params: PromptParams, conversation: AcpConversation, options: AcpOptions, record: AcpAgentRecord, notes: list[str]
) -> list[dict[str, Any]]:
    """What ``session/prompt`` says: what comes before the text, each in a block of its own, then text and images."""
    blocks: list[dict[str, Any]] = []
    if conversation.is_fresh and options.instructions:
        blocks.append(_text(options.instructions + _GAP))
    if conversation.earlier:
        blocks.append(_earlier(conversation.earlier, record))
    if notes:
        blocks.append(_text("\n".join((NOTE_MARK, *notes)) + _GAP))
    blocks.append(_text(params.text))
    if params.answer is not None and (words := answer_instructions(params.answer, passed_on=False)):
        blocks.append(_text(ANSWER_MARK + words))
    return blocks + image_blocks(params.images)


def image_blocks(images: list[ImageContent]) -> list[dict[str, Any]]:
    """Images as content blocks."""
    return [{"type": "image", "data": image.data, "mimeType": image.mime_type} for image in images]


def text_blocks(text: str, images: list[ImageContent]) -> list[dict[str, Any]]:
    """A text with images and nothing else."""
    return [_text(text), *image_blocks(images)]


def _earlier(tail: str, record: AcpAgentRecord) -> dict[str, Any]:
    end = tail.encode()[len(_GAP) - MAX_EARLIER_BYTES :].decode(errors="ignore")
    text = f"{EARLIER_MARK}\n{end}{_GAP}"
    if not record.embedded:
        return _text(text)
    return {"type": "resource", "resource": {"uri": "pool://earlier-talk", "mimeType": "text/plain", "text": text}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def user_entry(
    conversation: AcpConversation,
    header: SessionHeader | None,
    text: str,
    images: list[ImageContent],
    *,
    origin: MessageOrigin = "prompt",
    from_session: str | None = None,
) -> JournalWrite:
    """What a person said, for the transcript."""
    content: list[ContentBlock] = [TextBlock(text), *(ImageBlock(image.data, image.mime_type) for image in images)]
    message = TranscriptMessage("user", content, origin=origin, from_session=from_session)
    return JournalWrite(conversation.journal, header, message)


def assistant_entry(conversation: AcpConversation, text: str, stop_reason: str) -> JournalWrite:
    """What the agent said in a turn that has ended, be it nothing, for the transcript."""
    blocks: list[ContentBlock] = [TextBlock(text)] if text else []
    return JournalWrite(conversation.journal, None, TranscriptMessage("assistant", blocks, stop_reason=stop_reason))


def withdrawal(conversation: AcpConversation) -> JournalWrite:
    """Takes back what a person said last: the agent has not got it."""
    return JournalWrite(conversation.journal, withdraws=True)


def process_mark(journal: str, state: Literal["opened", "closed", "lost"]) -> JournalWrite:
    """What becomes of the conversation in this process, for its transcript."""
    return JournalWrite(journal, process=ProcessMark(state))


def journal_header(conversation: AcpConversation, options: AcpOptions, record: AcpAgentRecord) -> SessionHeader:
    """Whose conversation the transcript holds; its time is added by the layer that writes it."""
    return SessionHeader(
        version=FORMAT_VERSION,
        id=conversation.id,
        created="",
        cwd=options.cwd,
        agent=options.agent or record.agent,
        agent_version=record.version,
        agent_session=conversation.session,
    )
