"""Frames: what is one, what is none, and how large one may be."""

import pytest

from toolcrib.sandbox.wire import Frames, TooLarge, pack


def test_a_frame_may_have_as_many_bytes_as_the_limit() -> None:
    frame = pack({"a": 1}, limit_bytes=7)
    assert frame == b'\0\0\0\x07{"a":1}'
    with pytest.raises(TooLarge, match="7 bytes are over the limit of 6 bytes"):
        pack({"a": 1}, limit_bytes=6)
    frames = Frames(limit_bytes=7)
    frames.feed(frame + frame[:-1])
    assert frames.take() == {"a": 1}
    assert frames.take() is None
    frames.feed(frame[-1:])
    assert frames.take() == {"a": 1}
    frames.feed(b"\0\0\0\x08")
    with pytest.raises(TooLarge, match="8 bytes are over the limit of 7 bytes"):
        frames.take()
