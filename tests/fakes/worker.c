/* A worker that does what its arguments say, in their order; then it ends with 0.
 *
 *   fake-worker [[--on COND[,COND…]] ACTION]…
 *
 * COND limits the next action (all must hold): rank=N local=N group=N gen=N restart=N,
 * by RANK, LOCAL_RANK, GROUP_RANK, CTRUN_GENERATION, TORCHELASTIC_RESTART_COUNT.
 *
 * ACTION (in every TEXT and FILE, %r is the rank, %l the local rank, %g the generation,
 * %p the process id, %% a percent sign):
 *   exit=N            end with this code
 *   signal=N          die by this signal
 *   hang              wait for ever
 *   ignore=N          ignore this signal from now on
 *   on=N:CODE         end with CODE when this signal comes
 *   print=TEXT        a line on stdout        part=TEXT     without the line's end
 *   err=TEXT          a line on stderr        errpart=TEXT  without the line's end
 *   flood=BYTES       lines "rank R line I …" of differing lengths on stdout, BYTES
 *                     in all
 *   env               the environment, as one JSON object in one line on stdout
 *   fds               the open descriptors, as "fds: 0 1 2 …"
 *   stdin             copies stdin to stdout
 *   error=TEXT        writes error.json (torch's form) to $TORCHELASTIC_ERROR_FILE
 *   child=KIND        starts a process that hangs: plain (same session), group (own
 *                     group), setsid (own session), double (setsid, its parent ends)
 *   pid=FILE          appends the own process id and those of the children so far
 *   touch=FILE        makes the file          wait=FILE     waits until it exists
 *   progress=N        "step N" on the progress channel
 *   hello=FOLDER      control channel: says hello, which makes this an engine
 *   step=N            control channel: progress
 *   refuse=CODE:TEXT  control channel: refuses, then ends with CODE
 *   obey              control channel: waits for abort (ends with 80), leave (83: says
 *                     "told to leave"), its end (80)
 *
 * A mistake in the arguments ends it with 99. */

#include "common/control.h"
#include "common/err.h"
#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* NOLINTBEGIN(concurrency-mt-unsafe): one thread */

enum { MAX_CHILDREN = 64, MISTAKE = 99, LOST = 80, LEFT = 83, MAX_SIGNAL = 65 };

static pid_t children[MAX_CHILDREN];
static size_t n_children;
static volatile sig_atomic_t code_on[MAX_SIGNAL];

_Noreturn static void mistake(const char *what)
{
    (void)fprintf(stderr, "fake-worker: %s\n", what);
    exit(MISTAKE);
}

static void write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            exit(MISTAKE);
        }
        data += n;
        size -= (size_t)n;
    }
}

static const char *env_or(const char *name, const char *fallback)
{
    const char *value = getenv(name);

    return value ? value : fallback;
}

static int64_t number(const char *text)
{
    int64_t v;

    if (str_parse_i64(text, &v) < 0) {
        mistake(text);
    }
    return v;
}

/* Replaces %r %l %g %p; the text lives until the next call. */
static const char *expand(const char *text)
{
    static char out[4096];
    size_t n = 0;

    for (; *text != '\0' && n + 32 < sizeof(out); text++) {
        char pid[16];
        const char *value = NULL;

        if (*text != '%' || text[1] == '\0') {
            out[n++] = *text;
            continue;
        }
        text++;
        (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
        value = *text == 'r'   ? env_or("RANK", "0")
                : *text == 'l' ? env_or("LOCAL_RANK", "0")
                : *text == 'g' ? env_or("CTRUN_GENERATION", "0")
                : *text == 'p' ? pid
                               : "%";
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s", value);
    }
    out[n] = '\0';
    return out;
}

static void say(int fd, const char *text, const char *end)
{
    char line[4200];
    int n = snprintf(line, sizeof(line), "%s%s", expand(text), end);

    write_all(fd, line, (size_t)n);
}

static void do_exit(const char *arg)
{
    exit((int)number(arg));
}

static void do_signal(const char *arg)
{
    int signal_number = (int)number(arg);
    sigset_t set;

    (void)signal(signal_number, SIG_DFL);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, signal_number);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)raise(signal_number);
    mistake("that signal does not kill");
}

static void do_hang(const char *arg)
{
    (void)arg;
    for (;;) {
        (void)pause();
    }
}

static void do_ignore(const char *arg)
{
    (void)signal((int)number(arg), SIG_IGN);
}

static void on_told(int signal_number)
{
    _exit(code_on[signal_number]);
}

static void do_on(const char *arg)
{
    const char *colon = strchr(arg, ':');
    int signal_number = atoi(arg); /* NOLINT(cert-err34-c): checked by range */

    if (!colon || signal_number < 1 || signal_number >= MAX_SIGNAL) {
        mistake("on=N:CODE");
    }
    code_on[signal_number] = (sig_atomic_t)number(colon + 1);
    (void)signal(signal_number, on_told);
}

static void do_print(const char *arg)
{
    say(STDOUT_FILENO, arg, "\n");
}

static void do_part(const char *arg)
{
    say(STDOUT_FILENO, arg, "");
}

static void do_err(const char *arg)
{
    say(STDERR_FILENO, arg, "\n");
}

static void do_errpart(const char *arg)
{
    say(STDERR_FILENO, arg, "");
}

static void do_flood(const char *arg)
{
    int64_t left = number(arg);
    char line[512];

    for (unsigned i = 0; left > 0; i++) {
        int n =
            snprintf(line, sizeof(line), "rank %s line %u ", env_or("RANK", "0"), i);
        int pad = (int)(i * 37 % 300);

        memset(line + n, 'a' + (int)(i % 26), (size_t)pad);
        n += pad;
        line[n++] = '\n';
        write_all(STDOUT_FILENO, line, (size_t)n);
        left -= n;
    }
}

static void put_json_text(FILE *f, const char *text, size_t len)
{
    (void)fputc('"', f);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '"' || c == '\\') {
            (void)fprintf(f, "\\%c", c);
        } else if (c < ' ') {
            (void)fprintf(f, "\\u%04x", c);
        } else {
            (void)fputc(c, f);
        }
    }
    (void)fputc('"', f);
}

static void do_env(const char *arg)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    (void)arg;
    if (!f) {
        mistake("no memory");
    }
    for (char **e = environ; *e; e++) {
        size_t len = strcspn(*e, "=");

        (void)fputs(e == environ ? "{" : ", ", f);
        put_json_text(f, *e, len);
        (void)fputs(": ", f);
        put_json_text(f, *e + len + 1, strlen(*e + len + 1));
    }
    (void)fputs(environ[0] ? "}\n" : "{}\n", f);
    (void)fclose(f);
    write_all(STDOUT_FILENO, text, size);
    free(text);
}

static void do_fds(const char *arg)
{
    char line[4096] = "fds:";
    size_t n = strlen(line);

    (void)arg;
    for (int fd = 0; fd < 1024 && n + 16 < sizeof(line); fd++) {
        if (fcntl(fd, F_GETFD) >= 0) {
            n += (size_t)snprintf(line + n, sizeof(line) - n, " %d", fd);
        }
    }
    line[n++] = '\n';
    write_all(STDOUT_FILENO, line, n);
}

static void do_stdin(const char *arg)
{
    char data[4096];
    ssize_t n;

    (void)arg;
    while ((n = read(STDIN_FILENO, data, sizeof(data))) > 0) {
        write_all(STDOUT_FILENO, data, (size_t)n);
    }
}

static void do_error(const char *arg)
{
    const char *path = env_or("TORCHELASTIC_ERROR_FILE", "");
    const char *text = expand(arg);
    FILE *f;

    if (*path == '\0') {
        return;
    }
    f = fopen(path, "we");
    if (!f) {
        mistake("cannot write the error file");
    }
    (void)fputs("{\"message\": {\"message\": ", f);
    put_json_text(f, text, strlen(text));
    (void)fputs(", \"extraInfo\": {\"py_callstack\": ", f);
    put_json_text(f, text, strlen(text));
    (void)fprintf(f, ", \"timestamp\": \"%lld\"}}}\n", (long long)time(NULL));
    if (fclose(f) != 0) {
        mistake("cannot write the error file");
    }
}

/* Tells the parent its id through the pipe, then waits for ever. */
_Noreturn static void grandchild(int fd)
{
    pid_t pid = getpid();

    if (write(fd, &pid, sizeof(pid)) != (ssize_t)sizeof(pid)) {
        _exit(MISTAKE);
    }
    (void)close(fd);
    do_hang("");
    _exit(MISTAKE);
}

static void do_child(const char *kind)
{
    bool is_double = strcmp(kind, "double") == 0;
    bool has_session = is_double || strcmp(kind, "setsid") == 0;
    int ends[2];
    pid_t pid;

    if (n_children == MAX_CHILDREN || pipe2(ends, O_CLOEXEC) < 0) {
        mistake("cannot start a child");
    }
    pid = fork();
    if (pid < 0) {
        mistake("cannot fork");
    }
    if (pid == 0) {
        if (has_session) {
            (void)setsid();
        } else if (strcmp(kind, "group") == 0) {
            (void)setpgid(0, 0);
        }
        if (is_double && fork() != 0) {
            _exit(0);
        }
        grandchild(ends[1]);
    }
    (void)close(ends[1]);
    if (read(ends[0], &children[n_children], sizeof(pid_t)) != (ssize_t)sizeof(pid_t)) {
        mistake("no child");
    }
    n_children++;
    (void)close(ends[0]);
    if (is_double) {
        (void)waitpid(pid, NULL, 0);
    }
}

static void do_pid(const char *arg)
{
    char text[16 * (MAX_CHILDREN + 1)];
    size_t n = (size_t)snprintf(text, sizeof(text), "%d\n", (int)getpid());
    int fd = open(expand(arg), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    if (fd < 0) {
        mistake("cannot write the pid file");
    }
    for (size_t i = 0; i < n_children; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%d\n", (int)children[i]);
    }
    write_all(fd, text, n);
    (void)close(fd);
}

static void do_touch(const char *arg)
{
    int fd = open(expand(arg), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0) {
        mistake("cannot make the file");
    }
    (void)close(fd);
}

static void do_wait(const char *arg)
{
    const char *path = expand(arg);
    struct timespec pause_time = {.tv_nsec = 5000000};

    while (access(path, F_OK) != 0) {
        (void)nanosleep(&pause_time, NULL);
    }
}

static int channel(const char *name)
{
    return (int)number(env_or(name, "-1"));
}

static void do_progress(const char *arg)
{
    char line[64];
    int n = snprintf(line, sizeof(line), "step %lld\n", (long long)number(arg));

    write_all(channel(CONTROL_PROGRESS_ENV), line, (size_t)n);
}

static void send_control(const struct control *c)
{
    struct buf packet;
    ssize_t n;

    buf_init(&packet, CONTROL_MAX);
    if (control_encode(c, &packet) < 0) {
        mistake("control message too long");
    }
    n = send(channel(CONTROL_FD_ENV), buf_bytes(&packet), buf_len(&packet),
             MSG_NOSIGNAL);
    buf_release(&packet);
    if (n < 0) {
        exit(LOST);
    }
}

static void do_hello(const char *arg)
{
    struct control c = {.type = CONTROL_HELLO, .phase = "start"};

    (void)snprintf(c.path, sizeof(c.path), "%s", expand(arg));
    send_control(&c);
}

static void do_step(const char *arg)
{
    struct control c = {.type = CONTROL_PROGRESS, .step = (uint64_t)number(arg)};

    (void)snprintf(c.phase, sizeof(c.phase), "train");
    send_control(&c);
}

static void do_refuse(const char *arg)
{
    struct control c = {.type = CONTROL_REFUSE};
    const char *colon = strchr(arg, ':');

    if (!colon) {
        mistake("refuse=CODE:TEXT");
    }
    c.code = (uint32_t)atoi(arg); /* NOLINT(cert-err34-c): a test's own number */
    (void)snprintf(c.text, sizeof(c.text), "%s", expand(colon + 1));
    send_control(&c);
    exit((int)c.code);
}

static void do_obey(const char *arg)
{
    uint8_t packet[CONTROL_MAX];

    (void)arg;
    for (;;) {
        ssize_t n = recv(channel(CONTROL_FD_ENV), packet, sizeof(packet), 0);
        struct control c;

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            exit(LOST);
        }
        if (control_decode(packet, (size_t)n, &c) < 0) {
            mistake("a broken control message");
        }
        if (c.type == CONTROL_ABORT) {
            exit(LOST);
        }
        if (c.type == CONTROL_LEAVE) {
            (void)fprintf(stderr, "told to leave\n");
            exit(LEFT);
        }
    }
}

static const struct {
    const char *name;
    bool has_value;
    void (*run)(const char *arg);
} actions[] = {
    {"exit", true, do_exit},
    {"signal", true, do_signal},
    {"hang", false, do_hang},
    {"ignore", true, do_ignore},
    {"on", true, do_on},
    {"print", true, do_print},
    {"part", true, do_part},
    {"err", true, do_err},
    {"errpart", true, do_errpart},
    {"flood", true, do_flood},
    {"env", false, do_env},
    {"fds", false, do_fds},
    {"stdin", false, do_stdin},
    {"error", true, do_error},
    {"child", true, do_child},
    {"pid", true, do_pid},
    {"touch", true, do_touch},
    {"wait", true, do_wait},
    {"progress", true, do_progress},
    {"hello", true, do_hello},
    {"step", true, do_step},
    {"refuse", true, do_refuse},
    {"obey", false, do_obey},
};

static void act(const char *arg)
{
    size_t len = strcspn(arg, "=");
    bool has_value = arg[len] == '=';

    for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
        if (strlen(actions[i].name) == len && memcmp(actions[i].name, arg, len) == 0 &&
            actions[i].has_value == has_value) {
            actions[i].run(arg + len + has_value);
            return;
        }
    }
    mistake(arg);
}

static bool holds_one(const char *cond, size_t len)
{
    static const struct {
        const char *name;
        const char *variable;
    } conds[] = {
        {"rank=", "RANK"},
        {"local=", "LOCAL_RANK"},
        {"group=", "GROUP_RANK"},
        {"gen=", "CTRUN_GENERATION"},
        {"restart=", "TORCHELASTIC_RESTART_COUNT"},
    };

    for (size_t i = 0; i < ARRAY_LEN(conds); i++) {
        size_t name_len = strlen(conds[i].name);
        const char *value = env_or(conds[i].variable, "0");

        if (strncmp(cond, conds[i].name, name_len) == 0) {
            return strlen(value) == len - name_len &&
                   memcmp(value, cond + name_len, len - name_len) == 0;
        }
    }
    mistake(cond);
}

static bool holds(const char *conds)
{
    while (*conds != '\0') {
        size_t len = strcspn(conds, ",");

        if (!holds_one(conds, len)) {
            return false;
        }
        conds += len;
        conds += *conds == ',';
    }
    return true;
}

int main(int argc, char **argv)
{
    bool applies = true;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--on") == 0 && i + 1 < argc) {
            applies = applies && holds(argv[++i]);
            continue;
        }
        if (applies) {
            act(argv[i]);
        }
        applies = true;
    }
    return 0;
}

/* NOLINTEND(concurrency-mt-unsafe) */
