"""``pool chat``, a conversation on the terminal: ``machine`` decides, ``screen`` draws, ``link`` makes requests."""
