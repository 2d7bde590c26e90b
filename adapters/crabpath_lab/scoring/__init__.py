"""From rankings to scores, and from scores to intervals and differences."""
