#include "launcher/channel.h"

#include "common/closer.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum {
    LINE_MAX_BYTES = 256,
    TURN_MAX = 64,         /* packets or reads in one turn of the loop */
    CLOSE_MAX = 64 * 1024, /* bytes of progress read at the end … */
    CLOSE_PACKETS = 1024,  /* … and packets: more than a socket holds */
};

struct channel {
    struct channel_config config;
    int control_fd, progress_fd; /* ours */
    uv_poll_t control, progress;
    struct closer closer;
    bool is_skipping; /* the rest of a line that is too long */
    size_t n_line;
    char line[LINE_MAX_BYTES];
    struct control said;           /* the last progress */
    int stack_signal;              /* 0: none */
    bool is_asked;                 /* where it is … */
    char stack[CHANNEL_STACK_MAX]; /* … and this is what it has said since */
};

/* --- progress --- */

/* The first word of `rest`, which becomes what is behind it; NULL: there is none. */
static char *cut_word(char **rest)
{
    char *word = strsep(rest, " ");

    return word && *word != '\0' ? word : NULL;
}

static bool parse_step(char *rest, struct control *said)
{
    const char *word = cut_word(&rest);
    uint64_t step;

    if (!word || str_parse_u64(word, &step) < 0 || step > INT64_MAX) {
        return false; /* JSON's numbers have a sign */
    }
    said->step = step;
    (void)snprintf(said->phase, sizeof(said->phase), "%.31s", rest ? rest : "");
    return true;
}

static bool is_number(const char *word)
{
    char *end;

    (void)strtod(word, &end);
    return *end == '\0' && strlen(word) < CONTROL_PHASE_MAX;
}

static bool parse_loss(char *rest, struct control *said)
{
    const char *loss = cut_word(&rest);
    const char *speed = cut_word(&rest);
    double tok_s = speed ? strtod(speed, NULL) : 0;

    if (!loss || !is_number(loss) || (speed && !is_number(speed)) || rest) {
        return false;
    }
    (void)snprintf(said->loss, sizeof(said->loss), "%.31s", loss);
    said->loss_step = said->step;
    if (speed) {
        said->tok_s = tok_s >= 0 && tok_s < (double)UINT32_MAX ? (uint32_t)tok_s : 0;
    }
    return true;
}

bool channel_parse_progress(const char *line, struct control *said)
{
    char copy[LINE_MAX_BYTES];
    char *rest = copy;
    const char *word;

    if (strlen(line) >= sizeof(copy)) {
        return false;
    }
    (void)snprintf(copy, sizeof(copy), "%s", line);
    said->type = CONTROL_PROGRESS;
    word = cut_word(&rest);
    if (!word || !rest) {
        return false;
    }
    if (strcmp(word, "step") == 0) {
        return parse_step(rest, said);
    }
    return strcmp(word, "loss") == 0 && parse_loss(rest, said);
}

int channel_parse_stack(const char *line)
{
    static const char word[] = "stack ";
    uint64_t number;

    if (strncmp(line, word, sizeof(word) - 1) != 0 ||
        str_parse_u64(line + sizeof(word) - 1, &number) < 0) {
        return 0;
    }
    return number == SIGUSR1 || number == SIGUSR2 ||
                   (number >= (uint64_t)SIGRTMIN && number <= (uint64_t)SIGRTMAX)
               ? (int)number
               : 0;
}

static void keep_stack_line(struct channel *c)
{
    size_t before = strlen(c->stack);

    for (char *at = c->line; *at != '\0'; at++) {
        *at = (char)((unsigned char)*at < ' ' || *at == 0x7f ? '?' : *at);
    }
    if (before + strlen(c->line) + 2 <= sizeof(c->stack)) {
        (void)snprintf(c->stack + before, sizeof(c->stack) - before, "%s\n", c->line);
    }
}

int channel_ask_stack(struct channel *c)
{
    c->is_asked = c->stack_signal != 0;
    c->stack[0] = '\0';
    return c->stack_signal;
}

const char *channel_stack(const struct channel *c)
{
    return c->stack;
}

static void on_line(struct channel *c)
{
    c->line[c->n_line] = '\0';
    if (c->is_skipping) {
        /* nothing that it says is so long */
    } else if (channel_parse_progress(c->line, &c->said)) {
        c->config.on_control(c->config.arg, c->config.slot, &c->said);
    } else if (channel_parse_stack(c->line) != 0) {
        c->stack_signal = channel_parse_stack(c->line);
    } else if (c->is_asked) {
        keep_stack_line(c);
    }
    c->is_skipping = false;
    c->n_line = 0;
}

static void add_bytes(struct channel *c, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            on_line(c);
        } else if (c->n_line + 1 < sizeof(c->line)) {
            c->line[c->n_line++] = bytes[i];
        } else {
            c->is_skipping = true;
        }
    }
}

/* False when there is no more for now, or for ever (`*ret_is_over`). */
static bool read_progress(struct channel *c, bool *ret_is_over)
{
    char bytes[4096];
    ssize_t n = read(c->progress_fd, bytes, sizeof(bytes));

    *ret_is_over = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n > 0) {
        add_bytes(c, bytes, (size_t)n);
    }
    return n > 0;
}

static void on_progress(uv_poll_t *poll, int status, int events)
{
    struct channel *c = poll->data;
    bool is_over = status < 0;

    (void)events;
    for (int i = 0; i < TURN_MAX && !is_over && read_progress(c, &is_over); i++) {
    }
    if (is_over) {
        (void)uv_poll_stop(poll); /* always 0 */
    }
}

/* --- control --- */

static bool read_control(struct channel *c, bool *ret_is_over)
{
    uint8_t packet[CONTROL_MAX + 1];
    struct control m;
    ssize_t n = recv(c->control_fd, packet, sizeof(packet), MSG_DONTWAIT);

    if (n < 0 && errno == ECONNRESET) {
        return true; /* it ended without reading all; its own words come next */
    }
    *ret_is_over = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n <= 0) {
        return false;
    }
    if (control_decode(packet, (size_t)n, &m) < 0) {
        log_debug("a worker said something odd on its control channel", "local_rank=%u",
                  c->config.slot);
        return true;
    }
    c->config.on_control(c->config.arg, c->config.slot, &m);
    return true;
}

static void on_control(uv_poll_t *poll, int status, int events)
{
    struct channel *c = poll->data;
    bool is_over = status < 0;

    (void)events;
    for (int i = 0; i < TURN_MAX && !is_over && read_control(c, &is_over); i++) {
    }
    if (is_over) {
        (void)uv_poll_stop(poll); /* always 0 */
    }
}

int channel_send(struct channel *c, const struct control *m)
{
    struct buf packet;
    ssize_t n;
    int rv;

    buf_init(&packet, CONTROL_MAX);
    rv = control_encode(m, &packet);
    ASSERT(rv == 0); /* every message fits */
    n = send(c->control_fd, buf_bytes(&packet), buf_len(&packet),
             MSG_DONTWAIT | MSG_NOSIGNAL);
    rv = n >= 0 ? 0 : -errno;
    buf_release(&packet);
    return rv == -EAGAIN ? ERR_BUSY : rv;
}

/* --- opening, closing --- */

static void on_poll_closed(uv_handle_t *handle)
{
    struct channel *c = handle->data;

    closer_closed(&c->closer);
}

static void on_all_closed(void *arg)
{
    struct channel *c = arg;

    (void)close(c->control_fd); /* nothing is written behind our back */
    (void)close(c->progress_fd);
    mem_free(c);
}

static void close_polls(struct channel *c)
{
    closer_finish(&c->closer, on_all_closed, c);
    uv_close((uv_handle_t *)&c->control, on_poll_closed);
    uv_close((uv_handle_t *)&c->progress, on_poll_closed);
}

static void start_polls(struct channel *c, struct uv_loop_s *loop)
{
    int rv = uv_poll_init(loop, &c->control, c->control_fd);

    rv = rv < 0 ? rv : uv_poll_init(loop, &c->progress, c->progress_fd);
    ASSERT(rv == 0); /* a socket and a pipe can be polled */
    c->control.data = c;
    c->progress.data = c;
    closer_init(&c->closer);
    closer_opened(&c->closer);
    closer_opened(&c->closer);
    rv = uv_poll_start(&c->control, UV_READABLE, on_control);
    rv = rv < 0 ? rv : uv_poll_start(&c->progress, UV_READABLE, on_progress);
    ASSERT(rv == 0);
}

int channel_open(const struct channel_config *config, struct channel **ret,
                 int *ret_control, int *ret_progress, struct errmsg *msg)
{
    struct channel *c;
    int pair[2];
    int ends[2];
    int rv;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return errmsg_set(msg, -errno, "a worker's control channel: %s",
                          err_text(-errno));
    }
    if (pipe2(ends, O_CLOEXEC) < 0) {
        rv = -errno;
        (void)close(pair[0]);
        (void)close(pair[1]);
        return errmsg_set(msg, rv, "a worker's progress pipe: %s", err_text(rv));
    }
    c = mem_zalloc(sizeof(*c));
    c->config = *config;
    c->control_fd = pair[0];
    c->progress_fd = ends[0];
    start_polls(c, config->loop); /* makes our ends non-blocking */
    *ret = c;
    *ret_control = pair[1];
    *ret_progress = ends[1];
    return 0;
}

void channel_close(struct channel *c)
{
    bool is_over = false;

    if (!c || c->closer.is_closing) {
        return;
    }
    for (int i = 0; i < CLOSE_PACKETS && read_control(c, &is_over); i++) {
    }
    for (int i = 0; i < CLOSE_MAX / 4096 && read_progress(c, &is_over); i++) {
    }
    close_polls(c);
}
