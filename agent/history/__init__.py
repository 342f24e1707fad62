"""What a model gets to see of a conversation, and how an old one is made shorter: pure decisions."""
