"""Learning from feedback: recording, credit, and the changes that follow."""
