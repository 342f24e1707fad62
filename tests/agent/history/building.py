"""Conversations for tests, made of a few words each."""

from wire.entries import ContentBlock, TextBlock, ToolResultBlock, ToolUseBlock, TranscriptMessage


def prompt(text: str, origin: str = "prompt") -> TranscriptMessage:
    return TranscriptMessage("user", [TextBlock(text)], origin=origin)  # type: ignore[arg-type]  # tests name real ones


def said(text: str) -> TranscriptMessage:
    return TranscriptMessage("assistant", [TextBlock(text)])


def called(*ids: str) -> TranscriptMessage:
    blocks: list[ContentBlock] = [ToolUseBlock(call_id, "exec", {}) for call_id in ids]
    return TranscriptMessage("assistant", blocks)


def resulted(*ids: str) -> TranscriptMessage:
    return TranscriptMessage("user", [*(ToolResultBlock(call_id, {"ok": True}) for call_id in ids)], origin="tool")
