"""ctrun-rendezvous under a service manager: what it tells it, its configuration, its unit."""

import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS = ROOT / "systemd"
EXAMPLE = ROOT / "configs/rendezvous.yaml"
EXPOSURE_MAX = 1.5  # systemd-analyze's scale ends at 10


def run(bin_dir, *args):
    return subprocess.run([bin_dir / "ctrun-rendezvous", *args], capture_output=True, text=True,
                          timeout=300)


class Manager:
    """The notification socket's other end."""

    def __init__(self, path):
        self.path = str(path)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self.path)
        self.sock.settimeout(300)
        self.heard = []

    def hears(self, pattern):
        """Waits for a message that matches; what came before it is over."""
        while True:
            self.heard.append(self.sock.recv(4096).decode())
            if re.fullmatch(pattern, self.heard[-1]):
                return self.heard[-1]


@pytest.fixture
def manager(tmp_path):
    m = Manager(tmp_path / "notify")
    yield m
    m.sock.close()


@pytest.fixture
def managed(manager, start_server):
    """managed(*args, **env): a service with a manager."""

    def begin(*args, **env):
        return start_server(*args, env={**os.environ, "NOTIFY_SOCKET": manager.path, **env})

    return begin


def test_readiness_status_and_watchdog_are_notified(manager, managed):
    server = managed(WATCHDOG_USEC="50000")
    assert manager.hears(".*") == "READY=1"
    assert manager.hears("STATUS=.*") == "STATUS=0 jobs, 0 nodes, 0 connections"
    manager.hears("WATCHDOG=1")
    manager.hears("WATCHDOG=1")
    with server.client() as c:
        assert c.ping()
        manager.hears("STATUS=0 jobs, 0 nodes, 1 connection")
    server.process.signal(signal.SIGTERM)
    manager.hears("STOPPING=1")
    assert server.process.wait() == 0


def test_watchdog_hears_nothing_of_a_service_that_stands_still(manager, managed):
    server = managed(WATCHDOG_USEC="50000")
    manager.hears("WATCHDOG=1")
    server.process.signal(signal.SIGSTOP)
    manager.sock.settimeout(0.5)
    with pytest.raises(socket.timeout):
        while True:
            manager.sock.recv(4096)
    manager.sock.settimeout(300)
    server.process.signal(signal.SIGCONT)
    manager.hears("WATCHDOG=1")


def test_sighup_reads_the_configuration_again(manager, managed, tmp_path, wait_for):
    path = tmp_path / "rendezvous.yaml"
    path.write_text("max_connections: 64\n")
    server = managed("--config", path)
    manager.hears("READY=1")
    clients = [server.client() for _ in range(40)]
    assert all(c.ping() for c in clients)
    path.write_text("max_connections: 10\nlog_level: debug\nlease_ms: 9000\nlisten: 127.0.0.9:1\n")
    before = time.monotonic_ns() // 1000
    server.process.signal(signal.SIGHUP)
    reloading = manager.hears(r"RELOADING=1\nMONOTONIC_USEC=\d+")
    assert before <= int(reloading.split("=")[-1]) <= time.monotonic_ns() // 1000
    manager.hears("READY=1")
    wait_for(lambda: "the configuration was read again changed=max-connections,log-level\n"
             in server.process.err())
    assert "hold from the next start on keys=listen,lease-ms\n" in server.process.err()
    assert all(c.ping() for c in clients)  # who is in stays in
    with server.client() as c:
        assert c.is_closed()
    for c in clients:
        c.close()


def test_mistake_in_a_new_configuration_changes_nothing(manager, managed, tmp_path, wait_for):
    path = tmp_path / "rendezvous.yaml"
    path.write_text("log_level: info\n")
    server = managed("--config", path)
    manager.hears("READY=1")
    path.write_text("log_level: debug\nlease_ms: never\n")
    server.process.signal(signal.SIGHUP)
    manager.hears("READY=1")
    wait_for(lambda: f"{path}:2:11: lease-ms: expects" in server.process.err())
    assert "the configuration stays as it was" in server.process.err()
    path.write_text("log_level: info\nlease_ms: 3000\n")
    server.process.signal(signal.SIGHUP)
    manager.hears("READY=1")
    wait_for(lambda: "the configuration was read again changed=none\n" in server.process.err())
    with server.client() as c:
        assert c.ping()


# --- --check-config ---


def test_check_config_prints_what_it_understood(bin_dir):
    result = run(bin_dir, "--check-config", "--config", EXAMPLE)
    assert result.returncode == 0, result.stderr
    first, *lines = result.stdout.splitlines()
    assert first == "ctrun-rendezvous: the options are fine"
    assert lines[0].startswith("listen: 127.0.0.1:29400")
    assert "lease-ms: 3000" in lines and "log-level: info" in lines


def test_check_config_tries_the_addresses(bin_dir, free_port):
    result = run(bin_dir, "--check-config", "--listen=203.0.113.9:29400", "--insecure")
    assert result.returncode == 2
    assert "no network interface has this address" in result.stderr
    with socket.create_server(("127.0.0.1", free_port)):
        result = run(bin_dir, "--check-config", f"--listen=127.0.0.1:{free_port}")
    assert result.returncode == 0
    assert f"listen: 127.0.0.1:{free_port} (taken now" in result.stdout


def keys_of_the_example():
    """Every key of the file, those that are commented out, too."""
    found = re.findall(r"^(?:# )?([a-z_]+):", EXAMPLE.read_text(), re.MULTILINE)
    return {key.replace("_", "-") for key in found}


def options_of(bin_dir):
    names = re.findall(r"^ +(?:-\w, )?--([a-z-]+)", run(bin_dir, "--help").stdout, re.MULTILINE)
    return set(names) - {"config", "check-config", "help", "version"}


def test_every_option_has_its_key_in_the_example_and_is_understood(bin_dir, tmp_path):
    options = options_of(bin_dir)
    assert len(options) >= 8
    assert keys_of_the_example() == options
    shown = dict(line.split(": ", 1) for line in
                 run(bin_dir, "--check-config", "--config", EXAMPLE).stdout.splitlines())
    assert options <= shown.keys()

    def uncomment(match):
        """Not the examples of what is none by default: those files are not there."""
        is_none = shown[match[1].replace("_", "-")] == "none"
        return match[0] if is_none else f"{match[1]}:"

    path = tmp_path / "rendezvous.yaml"
    path.write_text(re.sub(r"^# ([a-z_]+):", uncomment, EXAMPLE.read_text(), flags=re.MULTILINE))
    result = run(bin_dir, "--check-config", "--config", path)
    assert result.returncode == 0, result.stderr
    shown["config"] = str(path)  # what is commented out is the default
    assert dict(line.split(": ", 1) for line in result.stdout.splitlines()) == shown


def test_check_config_looks_at_the_folder_of_the_state(bin_dir, tmp_path):
    there = tmp_path / "state"
    result = run(bin_dir, "--check-config", f"--state-dir={there}")
    assert result.returncode == 0, result.stderr
    assert f"state-dir: {there}\n" in result.stdout
    assert not there.exists()  # it only looks
    result = run(bin_dir, "--check-config", f"--state-dir={tmp_path}/no/state")
    assert result.returncode == 2
    assert "cannot make the folder" in result.stderr and "make its parent" in result.stderr
    there.write_text("")
    result = run(bin_dir, "--check-config", f"--state-dir={there}")
    assert result.returncode == 2
    assert "cannot open the folder" in result.stderr


def make_open(folder):
    folder.chmod(0o755)


def make_garbage(folder):
    (folder / "state.db").write_bytes(b"garbage " * 1024)


def make_torn(folder):
    (folder / "state.db").unlink()


def make_bare(folder):
    (folder / "state.db").unlink()
    (folder / "state.db-wal").unlink(missing_ok=True)
    assert (folder / "state.db-base").exists()


def make_pipe(folder):
    (folder / "lock").unlink()
    os.mkfifo(folder / "lock")


def make_damaged(folder):
    """In a row: behind the head, and where the log has no newer page."""
    with sqlite3.connect(folder / "state.db") as db:
        db.execute("update identity set boot = boot + 1")
    db.close()


def make_damaged_row(folder):
    """One that a start reads only when it has its addresses."""
    with sqlite3.connect(folder / "state.db") as db:
        db.execute("update events set value = x'00'")
    db.close()


def contents(folder):
    return {p.name: (p.stat().st_mode, p.stat().st_size, p.stat().st_mtime_ns,
                     p.read_bytes() if p.is_file() else None) for p in folder.iterdir()}


@pytest.fixture
def kept(start_server, tmp_path):
    """The folder of a service that has ended."""
    folder = tmp_path / "state"
    server = start_server(f"--state-dir={folder}", "--state-reserve-mib=1")
    server.process.signal(signal.SIGTERM)
    assert server.process.wait() == 0
    return folder


@pytest.mark.parametrize("spoil", [make_open, make_garbage, make_torn, make_bare, make_pipe,
                                   make_damaged, make_damaged_row])
def test_check_config_says_of_a_state_what_a_start_would(bin_dir, kept, spoil):
    spoil(kept)
    before = contents(kept)
    checked = run(bin_dir, "--check-config", f"--state-dir={kept}", "--listen=127.0.0.1:0")
    assert contents(kept) == before
    started = run(bin_dir, f"--state-dir={kept}", "--listen=127.0.0.1:0")
    assert (checked.returncode, checked.stderr) == (started.returncode, started.stderr)
    assert checked.returncode in (2, 95) and not checked.stdout


@pytest.mark.parametrize("spoil", [make_open, make_garbage, make_torn, make_damaged,
                                   make_damaged_row])
def test_of_several_mistakes_check_config_names_the_one_that_a_start_would(bin_dir, kept, spoil):
    spoil(kept)
    args = (f"--state-dir={kept}", "--listen=203.0.113.9:29400", "--insecure")
    checked = run(bin_dir, "--check-config", *args)
    started = run(bin_dir, *args)
    assert (checked.returncode, checked.stderr) == (started.returncode, started.stderr)
    assert (str(kept) in checked.stderr) == (spoil is not make_damaged_row)


def test_check_config_takes_a_good_state_and_leaves_it_as_it_is(bin_dir, kept, start_server):
    def check():
        before = contents(kept)
        result = run(bin_dir, "--check-config", f"--state-dir={kept}")
        assert result.returncode == 0, result.stderr
        assert f"state-dir: {kept}\n" in result.stdout
        assert contents(kept) == before

    check()
    with sqlite3.connect(kept / "state.db") as db:
        assert db.execute("select boot from identity").fetchall() == [(1,)]
    db.close()  # copies the log, and removes it
    assert not (kept / "state.db-wal").exists()
    check()
    start_server(f"--state-dir={kept}", "--state-reserve-mib=1")
    result = run(bin_dir, "--check-config", f"--state-dir={kept}")
    assert result.returncode == 0, result.stderr
    assert f"state-dir: {kept} (used now: by the service itself?)\n" in result.stdout


def test_database_that_a_start_left_blank_is_checked_and_used(bin_dir, tmp_path, start_server):
    """As a full disk leaves it at a first start: a head, and no table."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    with sqlite3.connect(folder / "state.db") as db:
        db.execute("pragma journal_mode = wal")
    db.close()
    assert (folder / "state.db").stat().st_size == 4096
    before = contents(folder)
    result = run(bin_dir, "--check-config", f"--state-dir={folder}")
    assert result.returncode == 0, result.stderr
    assert contents(folder) == before
    start_server(f"--state-dir={folder}", "--state-reserve-mib=1")


def test_files_of_the_state_are_for_the_service_alone(kept, start_server):
    names = {"lock", "reserve", "state.db", "state.db-wal", "state.db-base"}
    assert {p.name for p in kept.iterdir()} >= names - {"state.db-base"}
    assert {p.stat().st_mode & 0o777 for p in kept.iterdir()} == {0o600}
    for path in kept.iterdir():
        path.chmod(0o644)  # as older versions made them
    start_server(f"--state-dir={kept}", "--state-reserve-mib=1")
    assert {p.stat().st_mode & 0o777 for p in kept.iterdir()} == {0o600}


def test_what_one_job_may_take_is_no_more_than_what_all_may(bin_dir, tmp_path):
    path = tmp_path / "rendezvous.yaml"
    path.write_text("job_max_mib: 20\nstore_max_mib: 10\n")
    result = run(bin_dir, "--check-config", "--config", path)
    assert result.returncode == 2
    assert "--job-max-mib 20 is more than all jobs have together" in result.stderr


def test_key_that_is_given_in_both_spellings_is_refused(bin_dir, tmp_path):
    path = tmp_path / "rendezvous.yaml"
    path.write_text("store-max-mib: 10\nstore_max_mib: 20\n")
    result = run(bin_dir, "--check-config", "--config", path)
    assert result.returncode == 2
    assert f"{path}:2:1: store-max-mib was given before" in result.stderr


def test_limit_of_files_below_the_connections_is_told(bin_dir):
    result = subprocess.run(["prlimit", "--nofile=200:200", bin_dir / "ctrun-rendezvous",
                             "--check-config"], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "fewer files may be open than so many connections need" in result.stderr
    assert "files=200 needed=20032 max_connections=20000" in result.stderr


def test_service_needs_files_of_its_own_beside_those_of_the_connections(bin_dir):
    def check(files, *options):
        result = subprocess.run(["prlimit", f"--nofile={files}:{files}",
                                 bin_dir / "ctrun-rendezvous", "--check-config",
                                 "--max-connections=100", *options], capture_output=True,
                                text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        return result.stderr

    assert "files=131 needed=132 max_connections=100" in check(131)
    assert check(132) == ""
    with_http = "--http=127.0.0.1:0"
    assert "files=195 needed=196 max_connections=100" in check(195, with_http)
    assert check(196, with_http) == ""


def test_reload_that_allows_more_connections_than_files_is_told(start_server, tmp_path, wait_for):
    path = tmp_path / "rendezvous.yaml"
    path.write_text("max_connections: 50\n")
    server = start_server("--config", path,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))
    assert "fewer files" not in server.process.err()
    path.write_text("max_connections: 20000\n")
    server.process.signal(signal.SIGHUP)
    wait_for(lambda: "read again changed=max-connections\n" in server.process.err())
    assert "files=100 needed=20032 max_connections=20000" in server.process.err()


# --- the units ---


def settings(name):
    """The unit's settings; of those given several times the last."""
    lines = (UNITS / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]\w+=", line))


@pytest.fixture
def unit(tmp_path):
    """unit(name): a copy that systemd's tools accept: the programs' paths are there."""

    def copy(name):
        path = tmp_path / name.replace("@", "@test")
        path.write_text(re.sub(r"^(Exec\w+)=ctrun\S*", r"\1=/bin/true",
                               (UNITS / name).read_text(), flags=re.MULTILINE))
        return path

    return copy


analyze = shutil.which("systemd-analyze")


@pytest.mark.skipif(not analyze, reason="no systemd-analyze")
def test_unit_of_the_service_is_hardened(unit):
    out = subprocess.run([analyze, "security", "--offline=true", "--no-pager",
                          unit("ctrun-rendezvous.service")], capture_output=True, text=True,
                         timeout=300, env={**os.environ, "LC_ALL": "C.UTF-8"})
    score = re.search(r"exposure level for \S+: ([\d.]+)", out.stdout)
    assert score, out.stdout + out.stderr
    assert float(score[1]) <= EXPOSURE_MAX, out.stdout


@pytest.mark.skipif(not analyze, reason="no systemd-analyze")
@pytest.mark.parametrize("name", ["ctrun-rendezvous.service", "ctrun@.service"])
def test_units_are_understood(unit, name):
    out = subprocess.run([analyze, "verify", "--man=no", "--recursive-errors=no", unit(name)],
                         capture_output=True, text=True, timeout=300)
    assert name.split(".")[0].rstrip("@") not in out.stderr, out.stderr


def test_installed_units_name_the_programs_where_they_are_installed(tmp_path):
    subprocess.run(["make", "--no-print-directory", "install-units", f"DESTDIR={tmp_path}",
                    "PREFIX=/opt/ctrun"], cwd=ROOT, check=True, capture_output=True, timeout=60)
    programs = {re.match(r"\S+", command)[0]
                for unit in (tmp_path / "opt/ctrun/lib/systemd/system").glob("*.service")
                for command in re.findall(r"^Exec\w+=(.*)", unit.read_text(), re.MULTILINE)}
    assert programs == {"/opt/ctrun/bin/ctrun", "/opt/ctrun/sbin/ctrun-rendezvous", "/bin/kill"}


def test_unit_leaves_the_memory_that_the_bounds_may_take(bin_dir):
    bound = int(re.search(r"memory: at most (\d+) MiB",
                          run(bin_dir, "--check-config", "--config", EXAMPLE).stdout)[1])
    limit = settings("ctrun-rendezvous.service")["MemoryMax"]
    assert re.fullmatch(r"\d+G", limit)
    assert bound <= int(limit[:-1]) * 1024


def test_unit_leaves_a_descriptor_for_each_connection(bin_dir):
    connections = int(re.search(r"max-connections: (\d+)",
                                run(bin_dir, "--check-config").stdout)[1])
    assert int(settings("ctrun-rendezvous.service")["LimitNOFILE"]) > connections + 100


def test_unit_of_the_service_is_watched_and_comes_back():
    unit = settings("ctrun-rendezvous.service")
    assert unit["Type"] == "notify" and unit["WatchdogSec"] == "30s"
    assert unit["Restart"] == "always"
    assert unit["RestartPreventExitStatus"].split() == ["2", "95"]  # not a taken port's
    assert unit["ExecReload"].endswith("-HUP $MAINPID")
    assert unit["StateDirectory"] == "ctrun-rendezvous"
