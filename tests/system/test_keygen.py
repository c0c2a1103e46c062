"""`ctrun keygen`: what it says to do is done, word for word, from another folder."""

import os
import re
import shlex
import signal
import subprocess

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty one, and a folder to stand in; the tester's own keys are no part of a test."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CTRUN_SOCKET_DIR", str(tmp_path / "run"))
    for name in ("CTRUN_SECRET_FILE", "CREDENTIALS_DIRECTORY", "CTRUN_TLS_CERT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def keygen(bin_dir, tmp_path):
    """keygen(…) makes something in the folder `here`, and returns the commands that it names."""

    def make(*args):
        done = subprocess.run([bin_dir / "ctrun", "keygen", *args], capture_output=True, text=True,
                              cwd=tmp_path / "here")
        assert done.returncode == 0, done.stderr
        return Advice(done.stdout, bin_dir, tmp_path)

    return make


class Advice:
    """The lines of what keygen has printed that are commands: they begin with two blanks."""

    def __init__(self, text, bin_dir, folder):
        self.text = text
        self.folder = folder
        self.env = {**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}"}
        self.lines = [line[2:] for line in text.splitlines() if line.startswith("  ")]

    def command(self, beginning, address="", more=""):
        """Of those that begin so, the first, its blanks filled in."""
        line = next(line for line in self.lines if line.startswith(beginning))
        line = re.sub(r"\s*\(.*\)$", "", line)
        return line.replace("ADDRESS:29400", address).replace("…", more)

    def run(self, beginning, *args):
        return subprocess.run(["bash", "-c", self.command(beginning, *args)], cwd=self.folder,
                              env=self.env, capture_output=True, text=True)


@pytest.fixture
def follow(start, wait_for):
    """follow(advice, beginning, …) starts a command that goes on: its process."""

    def begin(advice, beginning, *args):
        return start(*shlex.split(advice.command(beginning, *args)), env=advice.env,
                     cwd=advice.folder)

    return begin


@pytest.fixture
def serve(follow, wait_for):
    """serve(advice) starts its service: the process, and how it is called upon."""

    def begin(advice):
        server = follow(advice, "ctrun-rendezvous", "127.0.0.1:0")
        found = wait_for(lambda: re.search(r"listening on \S+:(\d+)", server.out()))
        return server, f"127.0.0.1:{found[1]}"

    return begin


def joins(advice, address):
    """A job of a node that does what is printed."""
    done = advice.run("ctrun ", "", f"--nnodes=1 --rdzv-endpoint={address} true")
    return done.returncode == 0 or done.stderr


@pytest.mark.parametrize("args", [[], ["secrets/team"]])
def test_secret_is_used_and_replaced_as_is_said(keygen, serve, wait_for, tmp_path, args):
    advice = keygen(*args)
    if not args:  # "every ctrun of yours uses it"
        advice.lines.append("ctrun …")
    server, address = serve(advice)
    assert joins(advice, address) is True
    for n, line in enumerate(("mv", "rm"), 1):
        assert advice.run(line).returncode == 0
        server.signal(signal.SIGHUP)
        wait_for(lambda: server.err().count("the keys were read again") == n)
        assert joins(advice, address) is True
    assert len(list(tmp_path.rglob("*.previous"))) == 0


def test_secret_is_copied_as_is_said(keygen, tmp_path):
    advice = keygen()
    line = advice.command("ssh NODE ").replace("ssh NODE ", "HOME=$PWD/there bash -c ")
    subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True)
    there = tmp_path / "there/.config/ctrun/secret"
    assert there.read_text() == (tmp_path / "home/.config/ctrun/secret").read_text()
    assert there.stat().st_mode & 0o777 == 0o600


def test_operators_secret_is_used_as_is_said_and_no_node_is_told_to_show_it(keygen, serve, tmp_path):
    advice = keygen("keys/operator")
    assert "CTRUN_SECRET_FILE" not in advice.text
    nodes = keygen(*[word.replace("NAME", "team")
                     for word in shlex.split(advice.command("ctrun keygen"))[2:]])
    _, address = serve(advice)
    assert joins(nodes, address) is True
    assert advice.run("ctrun status", address).returncode == 0
    node = subprocess.run([advice.env["PATH"].split(":")[0] + "/ctrun",
                           f"--rdzv-secret-file={tmp_path}/here/keys/operator", "--nnodes=1",
                           f"--rdzv-endpoint={address}", "--rdzv-backend=c10d", "--no-python",
                           "true"], capture_output=True, text=True, env=advice.env)
    assert node.returncode == 94
    assert "does not allow it: show a secret of jobs (not an operator's)" in node.stderr


@pytest.mark.parametrize("job", ["a/b", "\u202eb"])
def test_certificate_for_an_id_that_no_job_has_is_refused(bin_dir, tmp_path, job):
    done = subprocess.run([bin_dir / "ctrun", "keygen", "--ca", tmp_path / "ca", "--job", job],
                          capture_output=True, text=True)
    assert done.returncode == 2
    assert "--job may not have '/', control characters, or what cannot" in done.stderr
    assert not (tmp_path / "ca").exists()


def test_help_fits_into_80_columns(bin_dir):
    done = subprocess.run([bin_dir / "ctrun", "keygen", "--help"], capture_output=True, text=True)
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_certificates_are_used_as_is_said(keygen, serve):
    advice = keygen("--ca", "ca")
    _, address = serve(advice)
    assert joins(advice, address) is True
    assert advice.run("ctrun status", address).returncode == 0


def test_certificate_of_a_job_on_a_new_folder_speaks_of_no_service_that_has_none(
        keygen, serve, follow, free_port):
    advice = keygen("--ca", "ca", "--job", "7")
    assert "service.pem" not in advice.text and "operator.pem" not in advice.text
    nodes = [follow(advice, "ctrun ", "", f"--nnodes=2 --rdzv-backend=c10d "
                    f"--rdzv-endpoint=127.0.0.1:{free_port} true") for _ in range(2)]
    assert [n.wait() for n in nodes] == [0, 0], nodes[0].err()  # one serves the other
    whole = keygen(*shlex.split(advice.command("ctrun keygen"))[2:])
    _, address = serve(whole)
    assert joins(advice, address) is True
    assert "service.pem" in keygen("--ca", "ca", "--node", "3").text


def test_certificates_that_are_gone_are_made_again_and_no_other(keygen, bin_dir, tmp_path):
    keygen("--ca", "ca")
    ca = tmp_path / "here/ca"
    before = {p.name: p.read_bytes() for p in ca.iterdir()}
    for end in ("pem", "key"):
        (ca / f"agent.{end}").unlink()
    keygen("--ca", "ca", "--days=3")
    after = {p.name: p.read_bytes() for p in ca.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"agent.pem", "agent.key"}
    again = subprocess.run([bin_dir / "ctrun", "keygen", "--ca", ca], capture_output=True, text=True)
    assert again.returncode == 2 and "is there already" in again.stderr


@pytest.mark.parametrize("args", [[], ["--job", "7"], ["--job", "7", "--node", "*"]])
def test_certificate_is_made_anew_as_is_said(keygen, serve, args):
    serving = keygen("--ca", "ca")
    advice = keygen("--ca", "ca", *args) if args else serving
    _, address = serve(serving)
    assert advice.run("mv").returncode == 0
    assert joins(advice, address) is True


@pytest.mark.parametrize("gone, said", [
    ([], "each certificate is there already"),
    (["pem"], "/agent.key is there already, and is not replaced: move it away"),
    (["key"], "/agent.pem is there already, and is not replaced: move it away"),
])
def test_what_is_in_the_way_of_a_certificate_is_named(keygen, bin_dir, tmp_path, gone, said):
    keygen("--ca", "ca")
    ca = tmp_path / "here/ca"
    for end in gone:
        (ca / f"agent.{end}").unlink()
    before = {p.name: p.read_bytes() for p in ca.iterdir()}
    done = subprocess.run([bin_dir / "ctrun", "keygen", "--ca", ca], capture_output=True, text=True)
    assert done.returncode == 2 and said in done.stderr
    assert {p.name: p.read_bytes() for p in ca.iterdir()} == before
    for end in {"pem", "key"} - set(gone):
        (ca / f"agent.{end}").unlink()
    keygen("--ca", "ca")
    assert {p.name for p in ca.iterdir()} == {*before, "agent.pem", "agent.key"}


def test_days_without_certificates_are_refused(bin_dir, tmp_path):
    done = subprocess.run([bin_dir / "ctrun", "keygen", "--days=3"], capture_output=True, text=True)
    assert done.returncode == 2 and "give --ca, too" in done.stderr
    assert not (tmp_path / "home/.config").exists()
