"""Maintenance: prunes unused learned data, connects isolated nodes, bounds the logs."""
