#include "launcher/output/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

void pty_resize(int ours, int terminal)
{
    struct winsize size;

    if (ioctl(terminal, TIOCGWINSZ, &size) == 0) {
        (void)ioctl(ours, TIOCSWINSZ, &size); /* else it stays as it is */
    }
}

/* By the open master, not by name: /dev/pts may be another mount's. */
static int open_peer(int ours)
{
    int peer;

    if (unlockpt(ours) < 0) {
        return -errno;
    }
    peer = ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return peer < 0 ? -errno : peer;
}

static int set_raw(int fd)
{
    struct termios mode;

    if (tcgetattr(fd, &mode) < 0) {
        return -errno;
    }
    cfmakeraw(&mode);
    return tcsetattr(fd, TCSANOW, &mode) < 0 ? -errno : 0;
}

int pty_open(int terminal, int ends[2])
{
    int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    int peer = ours < 0 ? -errno : open_peer(ours);
    int rv = peer < 0 ? peer : set_raw(peer);

    if (rv < 0) {
        if (peer >= 0) {
            (void)close(peer);
        }
        if (ours >= 0) {
            (void)close(ours);
        }
        return rv;
    }
    pty_resize(ours, terminal);
    ends[0] = ours;
    ends[1] = peer;
    return 0;
}
