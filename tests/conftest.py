"""What holds for every test that pytest runs."""

import os
import signal
import subprocess
import time

import pytest


def pytest_configure(config):
    # ignored in the background of a script, and then by all that is started here
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    config.addinivalue_line("markers", "release_only: means nothing under a sanitizer")
    config.addinivalue_line("markers", "faults_only: needs the points of common/fault.h")
    config.addinivalue_line("markers", "threads: has several; the quick suite under TSan")
    config.addinivalue_line("markers", "soak: only in a soak, CTRUN_SOAK=1")
    config.addinivalue_line("markers", "thorough: too slow for the quick suite under a sanitizer")


def pytest_collection_modifyitems(config, items):
    binaries = os.environ.get("BIN", "")
    is_soak = bool(os.environ.get("CTRUN_SOAK"))
    out = set() if is_soak else {"soak"}
    if any(mode in binaries for mode in ("asan", "tsan")):
        out |= {"release_only"} if is_soak else {"release_only", "thorough"}
    elif not any(mode in binaries for mode in ("debug", "cov")):
        out.add("faults_only")
    only_threads = "tsan" in binaries and not is_soak
    left_out = [item for item in items if any(map(item.get_closest_marker, out))
                or (only_threads and not item.get_closest_marker("threads"))]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=True)
def folder_of_kept_output(tmp_path_factory):
    """What ctrun keeps of programs that failed goes with the other files of the tests."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("tmpdir"))
    yield
    del os.environ["TMPDIR"]
    if before is not None:
        os.environ["TMPDIR"] = before


def pytest_sessionfinish(session, exitstatus):
    """In CI a skipped test is a failed one."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return  # one of several processes: the one that gathers their results tells
    if os.environ.get("CI") and exitstatus == 0 and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line("tests were skipped: in CI that is a failure", red=True)


@pytest.fixture
def two_hosts():
    """Two network namespaces joined by a cable: [(name, address), …]."""
    names = [f"ctrun{os.getpid()}{side}" for side in "ab"]
    cables = [f"ct{os.getpid()}{side}" for side in "ab"]
    addresses = ["10.77.0.1", "10.77.0.2"]

    def ip(*args):
        return subprocess.run(["ip", *args], check=True, capture_output=True, text=True).stdout

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", cables[0], "netns", names[0], "type", "veth",
           "peer", "name", cables[1], "netns", names[1])
        for name, cable, address in zip(names, cables, addresses):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
            ip("-n", name, "link", "set", "lo", "up")
        for name, cable in zip(names, cables):
            end = time.monotonic() + 60
            while "state UP" not in ip("-n", name, "link", "show", cable):
                assert time.monotonic() < end, f"{cable} does not come up"
                time.sleep(0.01)
        yield list(zip(names, addresses))
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
