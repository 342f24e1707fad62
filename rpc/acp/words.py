"""Words in an ACP agent's troubles by which those who explain them know what is wrong."""

WANTS_LOGIN = "wants a login"
"""In every message about a missing login."""
OFFERS_NO = "the agent offers no"
"""How every refusal of a setting begins that the agent does not have."""
