"""One test for each common outcome: passed, failed, crashed."""

import os
import signal


def test_passes():
    assert 1 + 1 == 2


def test_fails():
    assert 1 + 1 == 3


def test_crashes():
    os.kill(os.getpid(), signal.SIGSEGV)


def test_passes_after_the_crash():
    assert 2 + 2 == 4
