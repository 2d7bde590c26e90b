"""What learning gives: that it never hurts, what each mechanism adds, what it saves and costs."""
