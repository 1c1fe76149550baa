"""Serializes bodies that are raw bytes."""

import schemathesis


@schemathesis.serializer(
    "application/toml",
    "application/vnd.snap.bundle",
    "application/vnd.snap.outlines",
    "application/vnd.snap.pack",
)
def as_bytes(_, value):
    if isinstance(value, bytes):
        return value
    return str(value).encode("utf-8", "surrogatepass")
