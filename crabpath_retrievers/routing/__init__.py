"""Routers: which habitual edges a walk follows."""
