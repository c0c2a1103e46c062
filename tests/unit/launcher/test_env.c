/* The worker's environment against the contract's table, and how programs are run. The
 * substitution's expected texts were made by Python 3.11:
 *   string.Template(arg).safe_substitute(local_rank=3) */

#include "launcher/command.h"
#include "launcher/env.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"
#include "common/str.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/ctrun-env-XXXXXX";

static const char *value_of(char *const *env, const char *name)
{
    const char *found = NULL;
    size_t len = strlen(name);

    for (size_t i = 0; env[i]; i++) {
        if (strncmp(env[i], name, len) == 0 && env[i][len] == '=') {
            assert_null(found); /* each name once */
            found = env[i] + len + 1;
        }
    }
    return found;
}

static void every_variable_of_the_contract_is_set_and_the_rest_inherited(void **state)
{
    static const struct {
        const char *name;
        const char *value;
    } expected[] = {
        {"LOCAL_RANK", "1"},
        {"RANK", "4"},
        {"GROUP_RANK", "2"},
        {"ROLE_RANK", "3"},
        {"ROLE_NAME", "trainer"},
        {"LOCAL_WORLD_SIZE", "3"},
        {"WORLD_SIZE", "6"},
        {"GROUP_WORLD_SIZE", "3"},
        {"ROLE_WORLD_SIZE", "5"},
        {"MASTER_ADDR", "10.1.2.3"},
        {"MASTER_PORT", "41234"},
        {"TORCHELASTIC_RESTART_COUNT", "2"},
        {"TORCHELASTIC_MAX_RESTARTS", "5"},
        {"TORCHELASTIC_RUN_ID", "job"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", "/logs/error.json"},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGUSR1"},
        {"TORCHELASTIC_TIMER_FILE", "/tmp/timers"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"OMP_NUM_THREADS", "1"},
        {"CTRUN_GENERATION", "9"},
        {"CTRUN_NODE_ADDR", "10.1.2.4"},
        {"CTRUN_CONTROL_FD", "3"},
        {"CTRUN_PROGRESS_FD", "4"},
        {"HOME", "/root"},
        {"EMPTY", ""},
        {"ODD", "a=b"},
    };
    static char home[] = "HOME=/root";
    static char empty[] = "EMPTY=";
    static char odd[] = "ODD=a=b";
    static char rank[] = "RANK=99";
    static char fd[] = "CTRUN_CONTROL_FD=7";
    char *base[] = {home, rank, empty, odd, fd, NULL};
    const struct topology t = {2, 3, 3, 3, 6, 2, 5};
    struct worker_env we = {.topology = &t,
                            .local_rank = 1,
                            .generation = 9,
                            .master_addr = "10.1.2.3",
                            .master_port = 41234,
                            .node_addr = "10.1.2.4",
                            .run_id = "job",
                            .restart_count = 2,
                            .max_restarts = 5,
                            .error_file = "/logs/error.json",
                            .role = "trainer",
                            .signals = "SIGTERM,SIGUSR1",
                            .timer_file = "/tmp/timers",
                            .control_fd = 3,
                            .progress_fd = 4};
    char **env = worker_env_make(base, &we);
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        assert_non_null(value_of(env, expected[i].name));
        assert_string_equal(value_of(env, expected[i].name), expected[i].value);
    }
    while (env[n]) {
        n++;
    }
    assert_int_equal(n, ARRAY_LEN(expected)); /* and nothing else */
    mem_free(env);
}

static void what_the_user_has_set_is_kept_where_the_contract_says_so(void **state)
{
    static char omp[] = "OMP_NUM_THREADS=8";
    static char nccl[] = "TORCH_NCCL_ASYNC_ERROR_HANDLING=3";
    static char control[] = "CTRUN_CONTROL_FD=3";
    static char progress[] = "CTRUN_PROGRESS_FD=4";
    char *base[] = {omp, nccl, control, progress, NULL};
    char *none[] = {NULL};
    const struct topology one = {0, 1, 0, 1, 1, 0, 1};
    struct worker_env we = {.topology = &one,
                            .generation = 1,
                            .master_addr = "127.0.0.1",
                            .master_port = 1,
                            .node_addr = "127.0.0.1",
                            .run_id = "j",
                            .error_file = "",
                            .role = "default",
                            .signals = "SIGTERM,SIGUSR1",
                            .control_fd = -1,
                            .progress_fd = -1};
    char **env = worker_env_make(base, &we);

    (void)state;
    assert_string_equal(value_of(env, "OMP_NUM_THREADS"), "8");
    assert_string_equal(value_of(env, "TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
    assert_null(value_of(env, "CTRUN_CONTROL_FD")); /* an outer ctrun's channel */
    assert_null(value_of(env, "CTRUN_PROGRESS_FD"));
    assert_string_equal(value_of(env, "TORCHELASTIC_ERROR_FILE"), "");
    mem_free(env);
    env = worker_env_make(none, &we);
    assert_null(value_of(env, "OMP_NUM_THREADS")); /* one worker may use all cores */
    mem_free(env);
}

static void
with_a_virtual_local_rank_each_worker_sees_one_device_as_number_0(void **state)
{
    static char cuda[] = "CUDA_VISIBLE_DEVICES=4, 5";
    static char hip[] = "HIP_VISIBLE_DEVICES=7,8";
    static char no_hip[] = "HIP_VISIBLE_DEVICES=";
    char *base[] = {cuda, NULL, NULL};
    const struct topology t = {1, 2, 2, 2, 4, 2, 4};
    struct worker_env we = {.topology = &t,
                            .local_rank = 1,
                            .master_addr = "127.0.0.1",
                            .run_id = "j",
                            .error_file = "",
                            .role = "default",
                            .virtual_local_rank = true};
    char **env = worker_env_make(base, &we);

    (void)state;
    assert_string_equal(value_of(env, "LOCAL_RANK"), "0");
    assert_string_equal(value_of(env, "CUDA_VISIBLE_DEVICES"), "5");
    assert_null(value_of(env, "HIP_VISIBLE_DEVICES"));
    assert_string_equal(value_of(env, "RANK"), "3");
    assert_string_equal(value_of(env, "ROLE_RANK"), "3");
    assert_string_equal(value_of(env, "LOCAL_WORLD_SIZE"), "2");
    mem_free(env);
    base[1] = hip;
    env = worker_env_make(base, &we);
    assert_string_equal(value_of(env, "CUDA_VISIBLE_DEVICES"), "8");
    assert_string_equal(value_of(env, "HIP_VISIBLE_DEVICES"), "8");
    mem_free(env);
    base[0] = no_hip;
    base[1] = NULL;
    env = worker_env_make(base, &we);
    assert_string_equal(value_of(env, "CUDA_VISIBLE_DEVICES"), "1");
    assert_string_equal(value_of(env, "HIP_VISIBLE_DEVICES"), "");
    mem_free(env);
    we.virtual_local_rank = false;
    base[0] = cuda;
    env = worker_env_make(base, &we);
    assert_string_equal(value_of(env, "LOCAL_RANK"), "1");
    assert_string_equal(value_of(env, "CUDA_VISIBLE_DEVICES"), "4, 5");
    mem_free(env);
}

static void a_bound_worker_is_told_who_has_its_cpus_too(void **state)
{
    static char outer_rank[] = "CTRUN_CPU_RANK=5";
    static char outer_ranks[] = "CTRUN_CPU_RANKS=7";
    char *base[] = {outer_rank, outer_ranks, NULL};
    const struct topology one = {0, 1, 0, 1, 1, 0, 1};
    const struct numa_share share = {1, 3};
    struct worker_env we = {.topology = &one,
                            .master_addr = "127.0.0.1",
                            .run_id = "j",
                            .error_file = "",
                            .role = "default",
                            .cpu_share = &share};
    char **env = worker_env_make(base, &we);

    (void)state;
    assert_string_equal(value_of(env, "CTRUN_CPU_RANK"), "1");
    assert_string_equal(value_of(env, "CTRUN_CPU_RANKS"), "3");
    mem_free(env);
    we.cpu_share = NULL;
    env = worker_env_make(base, &we);
    assert_null(value_of(env, "CTRUN_CPU_RANK")); /* an outer ctrun's */
    assert_null(value_of(env, "CTRUN_CPU_RANKS"));
    mem_free(env);
}

/* ---- commands ---- */

static const char *in_folder(const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned n;
    char *path = paths[n++ % 8];

    assert_true(str_format(path, PATH_MAX, "%s/%s", folder, name));
    return path;
}

static void make_file(const char *name, const char *text, mode_t mode)
{
    FILE *f = fopen(in_folder(name), "we");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(in_folder(name), mode), 0);
}

static struct worker_command command_of_test(void)
{
    static char path[PATH_MAX];

    assert_true(str_format(path, sizeof(path), "%s/nowhere:%s/path", folder, folder));
    return (struct worker_command){.self_dir = in_folder("self"),
                                   .python = "python3",
                                   .path = path,
                                   .binfmt_dir = "/nonexistent"};
}

/* The command for `program` and "x", as one text with blanks; the error's text when it
 * fails. */
static const char *command_text(const struct worker_command *c, const char *program)
{
    static char text[4096];
    char *argv[3] = {NULL};
    static char arg[] = "x";
    struct errmsg msg = {""};
    char **made;
    size_t n = 0;

    memcpy(&argv[0], &program, sizeof(argv[0]));
    argv[1] = arg;
    if (worker_command_make(c, argv, 3, &made, &msg) < 0) {
        (void)snprintf(text, sizeof(text), "! %s", msg.text);
        return text;
    }
    text[0] = '\0';
    for (size_t i = 0; made[i]; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i > 0 ? " " : "",
                              made[i]);
    }
    mem_free(made);
    return text;
}

/* The expected text with "@" for the folder. */
static void assert_command(const struct worker_command *c, const char *program,
                           const char *expected)
{
    char text[4096];
    size_t n = 0;

    for (; *expected != '\0'; expected++) {
        if (*expected == '@') {
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", folder);
        } else {
            text[n++] = *expected;
        }
    }
    text[n] = '\0';
    assert_string_equal(command_text(c, program), text);
}

static void programs_are_executed_and_everything_else_is_pythons(void **state)
{
    struct worker_command c = command_of_test();

    (void)state;
    assert_command(&c, in_folder("tool"), "@/tool x");
    assert_command(&c, in_folder("shell.sh"), "@/shell.sh x");
    assert_command(&c, in_folder("train.py"), "@/path/python3 -u @/train.py x");
    assert_command(&c, in_folder("pyscript"), "@/path/python3 -u @/pyscript x");
    assert_command(&c, in_folder("envscript"), "@/path/python3 -u @/envscript x");
    assert_command(&c, in_folder("envperl"), "@/envperl x");
    assert_command(&c, in_folder("text"), "@/path/python3 -u @/text x");
    assert_command(&c, in_folder("empty"), "@/path/python3 -u @/empty x");
    assert_command(&c, in_folder("self"),
                   "@/path/python3 -u @/self x"); /* __main__.py */
    assert_command(&c, in_folder("noexec.sh"),
                   "! @/noexec.sh may not be executed; chmod +x it");
    assert_command(&c, in_folder("missing.py"),
                   "! cannot run @/missing.py: No such file or directory");
}

static void run_path_goes_before_what_the_program_is(void **state)
{
    struct worker_command c = command_of_test();

    (void)state;
    c.run_path = c.module = c.no_python = true;
    assert_command(&c, in_folder("tool"),
                   "@/path/python3 -u -c import runpy, sys; del sys.argv[0]; "
                   "runpy.run_path(sys.argv[0], run_name='__main__') @/tool x");
    assert_command(&c, in_folder("missing.py"),
                   "! cannot run @/missing.py: No such file or directory");
}

static void bare_names_are_found_beside_ctrun_then_in_path(void **state)
{
    struct worker_command c = command_of_test();
    char before[PATH_MAX];

    (void)state;
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(folder), 0);
    assert_command(&c, "both", "@/self/both x");
    assert_command(&c, "inpath", "@/path/inpath x");
    assert_command(&c, "train.py",
                   "@/path/python3 -u train.py x"); /* here, as torchrun */
    assert_command(&c, "text", "@/path/python3 -u text x");
    assert_command(
        &c, "nothing",
        "! cannot find the program 'nothing': neither beside ctrun nor in PATH, "
        "nor a file in this folder");
    assert_command(
        &c, "statu",
        "! cannot find the program 'statu': neither beside ctrun nor in PATH, "
        "nor a file in this folder; did you mean ctrun status");
    c.no_python = true;
    assert_command(&c, "inpath", "@/path/inpath x");
    assert_command(&c, in_folder("pyscript"), "@/pyscript x");
    assert_command(
        &c, "train.py",
        "! cannot find the program 'train.py': neither beside ctrun nor in PATH, "
        "nor a file in this folder that is asked for as ./NAME");
    assert_int_equal(chdir(before), 0);
}

static void what_cannot_be_executed_is_refused_in_one_line(void **state)
{
    struct worker_command c = command_of_test();

    (void)state;
    assert_command(&c, in_folder("lost.sh"),
                   "! cannot execute @/lost.sh: its interpreter '/not/there' (first "
                   "line) is no program");
    c.no_python = true;
    assert_command(&c, in_folder("shell.sh"), "@/shell.sh x");
    assert_command(&c, in_folder("noexec.sh"),
                   "! @/noexec.sh may not be executed; chmod +x it");
    assert_command(&c, in_folder("lost.sh"),
                   "! cannot execute @/lost.sh: its interpreter '/not/there' (first "
                   "line) is no program");
    assert_command(&c, in_folder("self"), "! cannot execute @/self: it is no file");
    assert_command(&c, in_folder("missing"),
                   "! cannot run @/missing: No such file or directory");
}

static void what_is_neither_elf_nor_a_script_is_refused_in_one_line(void **state)
{
    struct worker_command c = command_of_test();

    (void)state;
    c.no_python = true;
    assert_command(
        &c, in_folder("plain"),
        "! cannot execute @/plain: it is neither a binary (ELF) nor a script "
        "that begins with #!; a Python script runs without --no-python");
    assert_command(
        &c, in_folder("hollow"),
        "! cannot execute @/hollow: it is neither a binary (ELF) nor a script "
        "that begins with #!; a Python script runs without --no-python");
    c.binfmt_dir = in_folder("binfmt");
    assert_command(
        &c, in_folder("plain"),
        "! cannot execute @/plain: it is neither a binary (ELF) nor a script "
        "that begins with #!; a Python script runs without --no-python");
    make_file("binfmt/jar", "enabled\n", 0644);
    assert_command(&c, in_folder("plain"), "@/plain x"); /* may be one of those */
    assert_int_equal(unlink(in_folder("binfmt/jar")), 0);
}

static void modules_and_other_interpreters_are_run_as_asked(void **state)
{
    struct worker_command c = command_of_test();

    (void)state;
    c.module = true;
    assert_command(&c, "pkg.train", "@/path/python3 -u -m pkg.train x");
    c.python = in_folder("old/python");
    assert_command(&c, "pkg.train", "@/old/python -u -m pkg.train x");
    c.python = "python9";
    assert_command(&c, "pkg.train", "! PYTHON_EXEC=python9: no such program in PATH");
    c.python = in_folder("missing");
    assert_command(&c, "pkg.train", "! PYTHON_EXEC=@/missing: no such file");
    c.python = in_folder("self");
    assert_command(&c, "pkg.train", "! PYTHON_EXEC=@/self: is no file");
    c.python = in_folder("noexec.sh");
    assert_command(&c, "pkg.train", "! PYTHON_EXEC=@/noexec.sh: may not be executed");
}

static void without_a_named_interpreter_python3_is_taken_then_python(void **state)
{
    struct worker_command c = command_of_test();
    char path[PATH_MAX];

    (void)state;
    c.module = true;
    c.python = NULL; /* PYTHON_EXEC is not set */
    assert_command(&c, "pkg", "@/path/python3 -u -m pkg x");
    c.python = "";
    assert_command(&c, "pkg", "@/path/python3 -u -m pkg x");
    assert_true(str_format(path, sizeof(path), "%s/old:%s/path", folder, folder));
    c.path = path;
    assert_command(&c, "pkg", "@/path/python3 -u -m pkg x"); /* python3 wins */
    assert_true(str_format(path, sizeof(path), "%s/old", folder));
    assert_command(&c, "pkg", "@/old/python -u -m pkg x");
    c.path = "/nonexistent";
    assert_command(&c, "pkg",
                   "! cannot find python3 or python in PATH; set PYTHON_EXEC, or give "
                   "--no-python for a program that is not Python");
    c.module = false;
    assert_command(&c, in_folder("tool"), "@/tool x"); /* needs none */
}

static void arguments_are_substituted_as_by_pythons_template(void **state)
{
    static const char *const cases[][2] = {
        {"${local_rank}", "3"},
        {"a${local_rank}b${local_rank}", "a3b3"},
        {"$local_rank", "3"},
        {"$local_rank_x ${local_rank_x}", "$local_rank_x ${local_rank_x}"},
        {"$local_rank.x", "3.x"},
        {"$$", "$"},
        {"$${local_rank}", "${local_rank}"},
        {"$$$local_rank", "$3"},
        {"$", "$"},
        {"a$ b$", "a$ b$"},
        {"${local_rank", "${local_rank"},
        {"${ local_rank}", "${ local_rank}"},
        {"$HOME ${x} $1", "$HOME ${x} $1"},
        {"", ""},
    };
    struct worker_command c = command_of_test();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *argv[3] = {NULL};
        const char *tool = in_folder("tool");
        char **made;

        memcpy(&argv[0], &tool, sizeof(argv[0]));
        memcpy(&argv[1], &cases[i][0], sizeof(argv[1]));
        assert_int_equal(worker_command_make(&c, argv, 3, &made, NULL), 0);
        assert_string_equal(made[1], cases[i][1]);
        assert_null(made[2]);
        mem_free(made);
    }
}

static void engine_is_known_by_its_base_name(void **state)
{
    static char a[] = "ctrun-worker";
    static char b[] = "/x/bin/ctrun-worker";
    static char c[] = "ctrun-worker.py";

    (void)state;
    assert_true(worker_command_is_engine((char *[]){a, NULL}));
    assert_true(worker_command_is_engine((char *[]){b, NULL}));
    assert_false(worker_command_is_engine((char *[]){c, NULL}));
}

static const struct {
    const char *name;
    const char *text;
    mode_t mode;
} files[] = {
    {"tool", "\177ELF...", 0755},
    {"shell.sh", "#!/bin/sh\n", 0755},
    {"noexec.sh", "#!/bin/sh\n", 0644},
    {"lost.sh", "#! /not/there -x\n", 0755},
    {"train.py", "print()\n", 0644},
    {"pyscript", "#! /usr/bin/python3.11 -u\n", 0755},
    {"envscript", "#!/usr/bin/env -S A=b python3 -u\n", 0755},
    {"envperl", "#!/usr/bin/env perl\npython\n", 0755},
    {"text", "import os\n", 0644},
    {"empty", "", 0644},
    {"plain", "echo up\n", 0755},
    {"hollow", "", 0755},
    {"binfmt/register", "", 0200},
    {"binfmt/status", "enabled\n", 0644},
    {"self/both", "\177ELF", 0755},
    {"path/both", "\177ELF", 0755},
    {"path/inpath", "\177ELF", 0755},
    {"path/nothing", "\177ELF", 0644},
    {"old/python", "\177ELF", 0755},
    {"path/python3", "\177ELF", 0755},
};

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder) || mkdir(in_folder("self"), 0700) < 0 ||
        mkdir(in_folder("path"), 0700) < 0 || mkdir(in_folder("old"), 0700) < 0 ||
        mkdir(in_folder("binfmt"), 0700) < 0) {
        return -1;
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        make_file(files[i].name, files[i].text, files[i].mode);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        (void)unlink(in_folder(files[i].name));
    }
    (void)rmdir(in_folder("self"));
    (void)rmdir(in_folder("old"));
    (void)rmdir(in_folder("binfmt"));
    (void)rmdir(in_folder("path"));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variable_of_the_contract_is_set_and_the_rest_inherited),
        cmocka_unit_test(what_the_user_has_set_is_kept_where_the_contract_says_so),
        cmocka_unit_test(a_bound_worker_is_told_who_has_its_cpus_too),
        cmocka_unit_test(
            with_a_virtual_local_rank_each_worker_sees_one_device_as_number_0),
        cmocka_unit_test(programs_are_executed_and_everything_else_is_pythons),
        cmocka_unit_test(what_cannot_be_executed_is_refused_in_one_line),
        cmocka_unit_test(what_is_neither_elf_nor_a_script_is_refused_in_one_line),
        cmocka_unit_test(run_path_goes_before_what_the_program_is),
        cmocka_unit_test(bare_names_are_found_beside_ctrun_then_in_path),
        cmocka_unit_test(modules_and_other_interpreters_are_run_as_asked),
        cmocka_unit_test(without_a_named_interpreter_python3_is_taken_then_python),
        cmocka_unit_test(arguments_are_substituted_as_by_pythons_template),
        cmocka_unit_test(engine_is_known_by_its_base_name),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
