import signal

import pytest


@pytest.fixture(autouse=True, scope="session")
def _interruptible():
    """Ctrl-C works in the tests also where they were started in the background, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
