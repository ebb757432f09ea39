"""Tests for adapter.py, with every kind of end."""
import os, signal, unittest


def test_adds():
    print("adding")
    assert 1 + 1 == 2


def test_fails():
    assert [1, 2] == [1, 3], "the lists differ"


def test_is_skipped():
    raise unittest.SkipTest("needs a network")


def test_kills_its_process():
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def test_exits():
    os._exit(0)


def test_runs_after_them():
    pass
