"""Who asks: the bearer token of a request names its user, whose namespace nobody else can take.

Switch it on by a line in ``langgraph.json``: ``"auth": {"path": "./auth.py:auth"}``. Tokens stand
in ``CRABPATH_USER_TOKENS`` as ``user=token``, with commas between; put your own check in their
place.
"""

import hmac
import os

from langgraph_sdk import Auth

auth = Auth()


@auth.authenticate
async def authenticate(authorization: str | None) -> Auth.types.MinimalUserDict:
    """Find the user of a token.

    Raises:
        Auth.exceptions.HTTPException: 401; no user has this token.
    """
    scheme, _, given = (authorization or "").partition(" ")
    for entry in os.environ.get("CRABPATH_USER_TOKENS", "").split(","):
        user, _, token = entry.strip().partition("=")
        known = token and hmac.compare_digest(token.encode(), given.strip().encode())
        if scheme.lower() == "bearer" and known:
            return {"identity": user}
    raise Auth.exceptions.HTTPException(status_code=401, detail="send a token that is known here")
