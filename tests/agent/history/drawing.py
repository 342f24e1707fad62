"""Conversations of a few words each; any conversation and any rules, for tests of what holds for all of them."""

from hypothesis import strategies as st

from agent.sanitize import SanitizeRules
from wire.entries import (
    ContentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    TranscriptMessage,
)


def prompt(text: str, origin: str = "prompt") -> TranscriptMessage:
    return TranscriptMessage("user", [TextBlock(text)], origin=origin)  # type: ignore[arg-type]  # tests name real ones


def said(text: str) -> TranscriptMessage:
    return TranscriptMessage("assistant", [TextBlock(text)])


def called(*ids: str) -> TranscriptMessage:
    blocks: list[ContentBlock] = [ToolUseBlock(call_id, "exec", {}) for call_id in ids]
    return TranscriptMessage("assistant", blocks)


def resulted(*ids: str) -> TranscriptMessage:
    return TranscriptMessage("user", [*(ToolResultBlock(call_id, {"ok": True}) for call_id in ids)], origin="tool")


ids = st.sampled_from(["a", "b", "c", ""])
images = st.builds(ImageBlock, st.sampled_from(["aGk=", "", "abc", "abcd" * 5]), st.sampled_from(["image/png", "x/y"]))
blocks: st.SearchStrategy[ContentBlock] = st.one_of(
    st.builds(TextBlock, st.text(max_size=3)),
    st.builds(ThinkingBlock, st.text(max_size=3)),
    images,
    st.builds(ToolUseBlock, ids, st.sampled_from(["exec", ""]), st.sampled_from([{}, "x", None, [1]])),
    st.builds(
        ToolResultBlock, ids, st.sampled_from(["x", {"details": 1}]), st.booleans(), st.lists(images, max_size=2)
    ),
)


@st.composite
def messages(draw: st.DrawFn) -> TranscriptMessage:
    """Calls are the model's, results the user's; everything else may be anywhere."""
    role = draw(st.sampled_from(["user", "assistant"]))
    other = ToolUseBlock if role == "user" else ToolResultBlock
    content = [block for block in draw(st.lists(blocks, max_size=4)) if not isinstance(block, other)]
    origin = draw(st.sampled_from(["prompt", "tool", "steer"])) if role == "user" else "prompt"
    return TranscriptMessage(role, content, origin, None, draw(st.none() | st.just("main")))  # type: ignore[arg-type]


rules = st.builds(
    SanitizeRules,
    turns=st.none() | st.integers(1, 3),
    alternate=st.booleans(),
    images=st.integers(0, 3),
    image_chars=st.integers(0, 30),
    all_image_chars=st.integers(0, 30),
)
