"""Measures routing by a chat model: how often it is asked, what that costs and gives."""
