"""Unmodified PyTorch scripts under ctrun: gloo over the agents' store.

CTRUN_TORCH_PYTHON names the interpreter that has PyTorch; CTRUN_LEGACY_TORCH_PYTHON, for soaks, one
that has a version before 2.2, which speaks the store's older protocol (Debian 12: 1.13)."""

import json
import os
import pathlib
import re
import subprocess
import textwrap

import pytest

PYTHON = os.environ.get("CTRUN_TORCH_PYTHON",
                        os.path.expanduser("~/.cache/ctrun/torch/bin/python"))
LEGACY_PYTHON = os.environ.get("CTRUN_LEGACY_TORCH_PYTHON", "/usr/bin/python3")
HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(os.environ.get("BIN", HERE.parents[1] / "build/release/bin")).resolve()

pytestmark = pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"no PyTorch: {PYTHON}")

CHECKS = re.findall(r"^def check_(\w+)", (HERE / "process_group.py").read_text(), re.M)
# what gloo of 1.13 has not, or Debian has left out of it
ABSENT_FROM_LEGACY = {
    "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
    "objects_from_one_to_one", "subgroups", "group_made_by_its_members_alone", "device_mesh",
    "distributed_checkpoint",
}


@pytest.fixture
def run():
    """run(script, *arguments, options=[…], …) runs it to the end: [(exit code, out, err), …].
    With `hosts` there is an agent on each of them."""

    def go(*script, options=("--standalone", "--nproc-per-node=2"), hosts=None, python=PYTHON,
           env=()):
        processes = []
        for host in hosts or [None]:
            # its own name may mean an address that the other host cannot reach
            interface = host.replace("ctrun", "ct") if host else "lo"
            processes.append(subprocess.Popen(
                [*(["ip", "netns", "exec", host] if host else []), BIN / "ctrun", *options,
                 *script],
                env={**os.environ, "PYTHON_EXEC": python, "PYTHONDONTWRITEBYTECODE": "1",
                     "GLOO_SOCKET_IFNAME": interface, **dict(env)},
                text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE))
        try:
            outputs = [p.communicate(timeout=300) for p in processes]
        finally:
            for p in processes:
                p.kill()
                p.wait()
        return [(p.returncode, *o) for p, o in zip(processes, outputs)]

    return go


@pytest.fixture
def run_checks(run, tmp_path, request):
    """run_checks(nodes, ranks of each, …) runs process_group.py; what rank 0 printed."""

    def go(nodes, per_node, kills, *options, **kwargs):
        options = [*options, f"--nproc-per-node={per_node}", f"--max-restarts={kills}"]
        if nodes > 1:
            hosts = request.getfixturevalue("two_hosts")
            kwargs["hosts"] = [name for name, _ in hosts]
            options += [f"--nnodes={nodes}", "--rdzv-backend=c10d", "--rdzv-id=12345",
                        f"--rdzv-endpoint={hosts[1][1]}:29500"]
        results = run(HERE / "process_group.py", tmp_path, str(kills), options=options, **kwargs)
        assert [code for code, _, _ in results] == [0] * nodes, "".join(
            err for _, _, err in results)
        for _, _, err in results:
            assert err.count("was ended by signal 9 (SIGKILL)") == kills, err
        [line] = [line for _, out, _ in results for line in out.splitlines()
                  if line.startswith("{")]
        told = json.loads(line)
        assert (told["world"], told["generation"]) == (nodes * per_node, kills)
        return told

    return go


SOAK = pytest.mark.soak
BARRIER = {"TORCH_DIST_INIT_BARRIER": "1"}  # through the store, as before 2.0


@pytest.mark.parametrize("nodes, per_node, kills, options, env", [
    pytest.param(1, 2, 1, [], {}, id="2 ranks"),
    pytest.param(2, 2, 1, [], BARRIER, id="4 ranks on two nodes"),
    pytest.param(1, 4, 2, [], {}, id="4 ranks", marks=SOAK),
    pytest.param(1, 8, 2, ["--store-access=direct"], {}, id="8 ranks", marks=SOAK),
    pytest.param(2, 1, 3, ["--store-access=local"], {}, id="2 ranks on two nodes", marks=SOAK),
    pytest.param(2, 4, 2, ["--store-access=local"], BARRIER, id="8 ranks on two nodes",
                 marks=SOAK),
])
def test_every_collective_after_kill_9_of_a_rank(run_checks, nodes, per_node, kills, options,
                                                 env):
    told = run_checks(nodes, per_node, kills, *options, env=env)
    assert told["ran"] == CHECKS and told["absent"] == []
    assert (told["master"] == "127.0.0.1") == ("--store-access=local" in options or (
        nodes == 1 and not options))


@pytest.mark.soak
@pytest.mark.parametrize("nodes, per_node, kills", [(1, 2, 2), (1, 8, 1), (2, 2, 2)])
def test_legacy_torch_does_what_it_can(run_checks, nodes, per_node, kills):
    told = run_checks(nodes, per_node, kills, python=LEGACY_PYTHON)
    assert told["torch"].startswith("1.13")
    assert set(told["absent"]) == ABSENT_FROM_LEGACY
    assert set(told["ran"]) == set(CHECKS) - ABSENT_FROM_LEGACY


@pytest.mark.soak
def test_torchruns_own_agents_meet_in_our_service(tmp_path):
    """Their rendezvous is a value of theirs in our store, which nobody here reads."""
    service = subprocess.Popen([BIN / "ctrun-rendezvous", "--listen=127.0.0.1:0"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    agents = []
    try:
        port = re.search(r":(\d+)\n", service.stdout.readline())[1]
        for _ in range(2):
            agents.append(subprocess.Popen(
                [PYTHON, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1",
                 "--rdzv-backend=c10d", "--rdzv-id=x", f"--rdzv-endpoint=127.0.0.1:{port}",
                 "--local-addr=127.0.0.1", "--rdzv-conf=is_host=false",
                 HERE / "process_group.py", tmp_path],
                env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        results = [(*a.communicate(timeout=300), a.returncode) for a in agents]
    finally:
        for process in [service, *agents]:
            process.kill()
            process.wait()
    assert [code for _, _, code in results] == [0, 0], "".join(err for _, err, _ in results)
    [told] = [json.loads(out) for out, _, _ in results if out]
    assert told["ran"] == CHECKS and told["world"] == 2


def test_exception_of_a_recorded_main_is_in_the_report(run, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import os
        from torch.distributed.elastic.multiprocessing.errors import record

        @record
        def main():
            if os.environ["RANK"] == "1":
                raise ValueError("the cat sat on the keyboard")
            import signal
            signal.pause()

        main()
        """))
    [(code, _, err)] = run(script)
    assert code == 1
    report = err[err.index("Root Cause"):]
    assert "ValueError: the cat sat on the keyboard" in report
    assert "rank      : 1" in report
