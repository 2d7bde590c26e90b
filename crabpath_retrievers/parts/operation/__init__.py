"""Operation of a memory: maintenance, health, the doctor, archives, replays."""
