"""What reads the keyboard gives back what it borrows."""

import os
import signal

import pytest

from toolcrib.cli.prompts import _wakeup_kept


def test_the_descriptor_that_signals_wake_is_given_back_after_a_question() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing)
    try:
        with pytest.raises(EOFError), _wakeup_kept():
            assert signal.set_wakeup_fd(-1) == -1
            raise EOFError
        assert signal.set_wakeup_fd(-1) == writing
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)
