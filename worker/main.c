/* ctrun-worker: options → configuration → training run → exit code. */

#include "worker/checkpoint/verbs.h"
#include "worker/config.h"
#include "worker/control_client.h"
#include "worker/launch.h"
#include "worker/train.h"

#include "common/exit_code.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/stdfd.h"
#include "common/version.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_help(void)
{
    char *keys = config_help();

    (void)printf(
        "usage: ctrun-worker [--config-path DIR] [--config-name NAME] [key=value ...]\n"
        "                    [--dry-run] [--profile FILE] [--cfg job|all]\n"
        "                    [--help] [--version]\n"
        "       ctrun-worker ckpt list|verify|show|prune ...\n\n"
        "Trains a language model: one process per rank, started by ctrun, or alone.\n"
        "  --config-path DIR   folder of configurations; by default \"configs\", where\n"
        "                      the program is started\n"
        "  --config-name NAME  file in it, without or with .yaml; without this option\n"
        "                      no file is read: all keys are defaults and overrides\n"
        "  key=value           override a key; +key=value adds what no file sets,\n"
        "                      ++key=value does either, ~key removes what a file sets\n"
        "  group=NAME          another file of a group that the file's defaults name\n"
        "  --dry-run           print the plan (mesh, memory, traffic); write nothing\n"
        "  --profile FILE      what the queues did when, as a Chrome trace\n"
        "  --cfg job|all       print the resolved configuration: every key\n\n"
        "Signals, files, exit status and examples: man ctrun-worker. Keys:\n%s",
        keys);
    mem_free(keys);
    return 0;
}

static int print_config(const struct train_config *config)
{
    char *yaml = config_to_yaml(config);

    (void)fputs(yaml, stdout);
    mem_free(yaml);
    return 0;
}

/* The control channel is opened first of all, so that a refusal reaches the agent,
 * which prints it once for the job. */
static int run(const struct worker_options *options, int config_error,
               struct errmsg *config_msg)
{
    struct control_client *control = NULL;
    struct launch launch;
    struct errmsg msg = {""};
    char context[32];
    int code;

    if (launch_read(&launch, &msg) < 0 ||
        control_client_open(launch.control_fd, &control, &msg) < 0) {
        (void)fprintf(stderr, "ctrun-worker: %s\n", msg.text);
        return EXIT_MISTAKE;
    }
    (void)snprintf(context, sizeof(context), "rank=%d", launch.rank);
    log_setup("ctrun-worker", context,
              log_level_parse(options->config.log.level, LOG_LEVEL_INFO));
    if (config_error == 0) {
        config_error = config_check(&options->config, config_msg);
    }
    if (config_error < 0) {
        control_client_refuse(control, EXIT_MISTAKE, 0, config_msg->text);
        code = EXIT_MISTAKE;
    } else {
        code = train_run(options, &launch, control);
    }
    control_client_close(control);
    return code;
}

int main(int argc, char **argv)
{
    struct worker_options *options;
    struct errmsg msg = {""};
    int code;
    int rv;

    if (!stdfd_open_closed()) {
        return EXIT_MISTAKE;
    }
    log_setup("ctrun-worker", "", LOG_LEVEL_INFO);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file size limit is a write's error: storage */
    if (argc > 1 && strcmp(argv[1], "ckpt") == 0) {
        return ckpt_main(argc - 1, argv + 1);
    }
    options = mem_zalloc(sizeof(*options));
    rv = config_parse(argc, argv, options, &msg);
    if (rv == 0 && options->help) {
        code = print_help();
    } else if (rv == 0 && options->version) {
        (void)puts("ctrun-worker " CTRUN_VERSION);
        code = 0;
    } else if (rv == 0 && options->cfg[0] != '\0') {
        code = print_config(&options->config);
    } else {
        code = run(options, rv, &msg);
    }
    mem_free(options);
    return code;
}
