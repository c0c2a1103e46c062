/* ctrun: torchrun's command line in front of the rendezvous and the workers of one
 * node. */

#include "launcher/keeper/keeper.h"
#include "launcher/options/options.h"
#include "launcher/output/terminal.h"
#include "launcher/path.h"
#include "launcher/supervisor.h"
#include "launcher/verbs/keygen.h"
#include "launcher/verbs/verbs.h"

#include "common/exit_code.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/stdfd.h"
#include "common/version.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The verbs that need the engine's code are the engine's. */
static int run_engine(char *const *words)
{
    char folder[PATH_MAX];
    char path[PATH_MAX + sizeof("/ctrun-worker")];

    path_own_folder(folder, sizeof(folder));
    (void)snprintf(path, sizeof(path), "%s/ctrun-worker", folder); /* fits */
    (void)execv(path, words - 1); /* words[-1] is our own name */
    log_error("cannot run the engine", "path=%s error=%s", path, err_name(-errno));
    return EXIT_MISTAKE;
}

/* The exit code of who only prints: half a man page is none. */
static int end_printing(int code)
{
    bool is_whole = fflush(stdout) == 0 && !ferror(stdout);

    if (code != EXIT_SUCCESS || is_whole) {
        return code;
    }
    log_error("stdout does not take all of it", "%s", "");
    return EXIT_MISTAKE;
}

static int print_text(char *text)
{
    (void)fputs(text, stdout); /* end_printing tells */
    mem_free(text);
    return end_printing(EXIT_SUCCESS);
}

static int take_environment(struct launch_options *o, struct errmsg *msg)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    const char *shutdown = getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");

    return o->verb ? 0 : launch_options_shutdown_env(o, shutdown, msg);
}

static void print_warnings(const struct launch_options *o)
{
    if (o->signals.trouble[0] != '\0') {
        log_warn(o->signals.trouble, "%s", "");
    }
    if (!signals_has(&o->signals, SIGTERM)) {
        log_warn(
            "--signals-to-handle leaves out SIGTERM: it will end ctrun at once, and "
            "its workers without a moment to save",
            "%s", "");
    }
    if (o->note[0] != '\0') {
        log_warn(o->note, "%s", "");
    }
}

/* "" is as good as unset. */
static int set_up_log(struct errmsg *msg)
{
    const char *level =
        getenv("CTRUN_LOG"); /* NOLINT(concurrency-mt-unsafe): one thread */
    enum log_level parsed = log_level_parse(level ? level : "", LOG_LEVEL_INFO);

    log_setup("ctrun", "", parsed);
    if (level && level[0] != '\0' &&
        parsed != log_level_parse(level, LOG_LEVEL_DEBUG)) {
        return errmsg_set(msg, ERR_INVALID,
                          "CTRUN_LOG=%.80s: expects error, warn, info or debug", level);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct launch_options options;
    struct errmsg msg = {0};
    struct terminal terminal;
    const struct verb *verb = argc > 1 ? verb_find(argv[1]) : NULL;
    struct keeper keeper;
    int exit_code;

    if (!stdfd_open_closed()) {
        return EXIT_MISTAKE;
    }
    if (set_up_log(&msg) == 0 && verb) {
        return verbs_run(verb, argc - 1, argv + 1);
    }
    if (msg.text[0] == '\0' && argc > 1 && strcmp(argv[1], "keygen") == 0) {
        return keygen_run(argc - 1, argv + 1);
    }
    if (msg.text[0] != '\0' ||
        launch_options_parse(argc, argv, environ, &options, &msg) < 0 ||
        take_environment(&options, &msg) < 0) {
        log_error(msg.text, "%s", "");
        return EXIT_MISTAKE;
    }
    if (options.help) {
        return print_text(launch_options_help());
    }
    if (options.version) {
        (void)printf("ctrun %s\n", CTRUN_VERSION);
        return end_printing(EXIT_SUCCESS);
    }
    if (options.print != TABLE_NOT) {
        return print_text(launch_options_print(options.print));
    }
    if (options.verb) {
        return run_engine(options.program);
    }
    if (options.dry_run) {
        print_warnings(&options);
        return end_printing(supervisor_dry_run(&options, environ));
    }
    if (keeper_start(&keeper, argv, &msg) < 0) {
        log_error(msg.text, "%s", "");
        return EXIT_MISTAKE;
    }
    terminal_remember(&terminal);
    print_warnings(&options);
    exit_code = supervisor_run(&options, &keeper, environ);
    keeper_stop(&keeper);
    if (exit_code != EXIT_SUCCESS) { /* else the program may have meant it */
        terminal_restore(&terminal);
    }
    return exit_code;
}
