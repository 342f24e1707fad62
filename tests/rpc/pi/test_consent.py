"""What an extension of pi may be agreed to."""

from rpc.pi.consent import MAX_QUESTIONS, Consent
from wire.messages import UiRequest


def test_a_bounded_number_of_questions_is_agreed_to() -> None:
    consent = Consent()
    with consent.granting(frozenset()):
        for number in range(MAX_QUESTIONS + 2):
            answer = consent.answer(UiRequest(id=str(number), method="confirm", fields={"title": f"Sure? {number}"}))
            assert answer is not None
            assert answer.cancelled
    assert consent.refused == {f"Sure? {number}\n" for number in range(MAX_QUESTIONS)}
