"""Looks at processes of the machine."""


def alive(pid):
    """True while the process is there and no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_pending(pid, number):
    """True while the signal was sent to the process and not yet taken by it."""
    with open(f"/proc/{pid}/status") as f:
        masks = dict(line.split(":\t", 1) for line in f)
    return any(int(masks[k], 16) >> (number - 1) & 1 for k in ("SigPnd", "ShdPnd"))


def pids_in(path):
    return [int(word) for word in path.read_text().split()] if path.exists() else []
