"""What supervisor and agent share: messages, framing, transcripts, terminal output, files and processes."""
