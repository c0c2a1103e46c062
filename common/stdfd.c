#include "common/stdfd.h"

#include <fcntl.h>
#include <unistd.h>

bool stdfd_open_closed(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) {
            return false;
        }
    }
    return true;
}
