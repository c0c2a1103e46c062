/* To stdout: tables on a terminal or into a pipe, or JSON. */

#include "launcher/verbs/verbs_core.h"

#include "common/clock.h"
#include "common/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* no-color.org: whatever is in it. */
static bool wants_colours(void)
{
    /* NOLINTBEGIN(concurrency-mt-unsafe): nobody sets the environment */
    const char *no = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    /* NOLINTEND(concurrency-mt-unsafe) */

    return (!no || no[0] == '\0') && term && strcmp(term, "dumb") != 0;
}

static size_t find_width(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

struct show_style printing_style(const struct verb_options *o)
{
    bool is_terminal = isatty(STDOUT_FILENO) == 1;

    return (struct show_style){.width = is_terminal ? find_width() : 0,
                               .has_colours = is_terminal && wants_colours(),
                               .is_terminal = is_terminal,
                               .has_prefix = o->rank < 0,
                               .wall_ms = clock_wall_ms()};
}

/* Who has closed a pipe has read enough. */
static void say_trouble(int rv)
{
    if (rv != -EPIPE) {
        log_error("stdout does not take all of it", "error=\"%s\"", err_text(rv));
    }
}

static bool put(const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDOUT_FILENO, data, size);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            say_trouble(-errno);
            return false;
        }
        data += n;
        size -= (size_t)n;
    }
    return true;
}

bool printing_put(const struct buf *text)
{
    return buf_len(text) == 0 || put((const char *)buf_bytes(text), buf_len(text));
}

bool printing_put_json(const json_t *json)
{
    char *text =
        json_dumps(json, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
    bool is_put;

    if (!text) {
        return false;
    }
    is_put = put(text, strlen(text)) && put("\n", 1);
    free(text); /* jansson's */
    return is_put;
}
