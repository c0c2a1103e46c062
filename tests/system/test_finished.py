"""A service of its own outlives its jobs: nodes that were away when theirs ended."""

import os
import signal

import pytest


@pytest.mark.parametrize("code", [0, 137])
def test_node_that_was_away_when_its_job_ended_does_not_begin_it_again(
    start, bin_dir, start_server, wait_for, tmp_path, code
):
    server = start_server()
    go = tmp_path / "go"
    script = (
        f'echo "run $RANK of $WORLD_SIZE"; until [ -e {go} ]; do sleep 0.1; done; '
        f"exit {code}"
    )

    def node(rank, last_call_s=1):
        return start(
            bin_dir / "ctrun", "--nnodes=1:2", f"--node-rank={rank}", "--rdzv-id=z",
            f"--rdzv-endpoint=127.0.0.1:{server.port}",
            f"--rdzv-conf=join_timeout=60,last_call_timeout={last_call_s}",
            "--no-python", "/bin/sh", "-c", script,
            env={**os.environ, "TORCHELASTIC_ERROR_FILE": str(tmp_path / f"error-{rank}.json")},
        )

    stays, away = node(0), node(1)
    wait_for(lambda: "of 2" in stays.out() and "of 2" in away.out())
    away.signal(signal.SIGSTOP)
    wait_for(lambda: "of 1" in stays.out())  # its lease ended, and the other went on
    go.touch()
    assert stays.wait() == code
    away.signal(signal.SIGCONT)
    assert away.wait() == code
    assert f"job z is over: it ended with exit code {code}" in away.err()
    assert away.out().count("run") == 1
    errors = [tmp_path / f"error-{rank}.json" for rank in (0, 1)]
    assert [e.exists() for e in errors] == [code != 0] * 2
    assert code == 0 or f"ended with exit code {code}" in errors[1].read_text()

    fresh = [node(rank, last_call_s=60) for rank in (0, 1)]  # a user's new start is none of that
    assert [f.wait() for f in fresh] == [code, code]
    # the first to fail has the other stopped, maybe before it says a word
    assert "of 2" in fresh[0].out() + fresh[1].out()
