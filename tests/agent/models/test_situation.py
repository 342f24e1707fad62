"""What the scripted model reads from a conversation that grows is what it would read from the whole."""

from hypothesis import given
from hypothesis import strategies as st

from agent.models.scripted import ConversationReader
from tests.agent.history.building import prompt, said
from tests.agent.history.drawing import messages
from wire.entries import TranscriptMessage


@given(st.lists(st.lists(messages(), max_size=3), max_size=6))
def test_growing_makes_no_difference(parts: list[list[TranscriptMessage]]) -> None:
    reader = ConversationReader()
    conversation: list[TranscriptMessage] = []
    for part in parts:
        conversation = [*conversation, *part]
        assert reader.read(conversation) == ConversationReader().read(conversation)


def test_another_conversation_is_another_one() -> None:
    reader = ConversationReader()
    reader.read([prompt("1"), said("one"), prompt("2")])
    assert reader.read([prompt("1"), said("eins"), prompt("2")]).before == ["1"]
    assert reader.read([prompt("hello")]).turn == 1
