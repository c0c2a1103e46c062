/* The arguments of one worker (command.h): who executes the program, and where it lies.
 *
 *   train.py                      a file here                python -u train.py
 *   ctrun-worker, ./a.out         ELF                        itself
 *   ./run.sh                      #! names another program   itself
 *   ./tool, a folder, anything    everything else            python -u
 */

#include "launcher/command.h"

#include "launcher/path.h"
#include "launcher/texts.h"
#include "launcher/verbs/verb_options.h"

#include "common/mem.h"
#include "common/str.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum runner { RUN_DIRECTLY, RUN_BY_PYTHON };

enum { HEAD_SIZE = 256 }; /* of a program's file: as much as the kernel looks at */

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool is_executable(const char *path)
{
    return is_file(path) && access(path, X_OK) == 0;
}

/* `dir`/`name` into `ret` when it is an executable file. */
static bool find_in(const char *dir, size_t len, const char *name, char *ret)
{
    if (len == 0) {
        return false; /* an empty entry of PATH means here, which no one wants */
    }
    return str_format(ret, PATH_MAX, "%.*s/%s", (int)len, dir, name) &&
           is_executable(ret);
}

static bool find_in_path(const char *path, const char *name, char *ret)
{
    while (path && *path != '\0') {
        size_t len = strcspn(path, ":");

        if (find_in(path, len, name, ret)) {
            return true;
        }
        path += len;
        path += *path == ':';
    }
    return false;
}

static bool ends_in(const char *text, const char *end)
{
    size_t len = strlen(text);
    size_t end_len = strlen(end);

    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* Or a verb was meant, which is no program. */
static int say_missing(const char *name, bool is_here, struct errmsg *msg)
{
    const char *verb = is_here ? NULL : verb_nearest(name);

    return errmsg_set(msg, ERR_MISSING,
                      "cannot find the program '%.200s': neither beside ctrun nor in "
                      "PATH, nor a file in this folder%s%s%s",
                      name, is_here ? " that is asked for as ./NAME" : "",
                      verb ? "; did you mean ctrun " : "", verb ? verb : "");
}

static int find_program(const struct worker_command *c, const char *name, char *ret,
                        struct errmsg *msg)
{
    struct stat st;
    bool is_here = stat(name, &st) == 0;

    if (strlen(name) >= PATH_MAX) {
        return errmsg_set(msg, ERR_INVALID, "the program's name is too long");
    }
    if (strchr(name, '/') || (is_here && !c->no_python && ends_in(name, ".py"))) {
        if (!is_here) {
            return errmsg_set(msg, ERR_MISSING, "cannot run %.200s: %s", name,
                              err_text(-errno));
        }
        memcpy(ret, name, strlen(name) + 1);
        return 0;
    }
    if (find_in(c->self_dir, strlen(c->self_dir), name, ret) ||
        find_in_path(c->path, name, ret)) {
        return 0;
    }
    if (is_here && !c->no_python) {
        memcpy(ret, name, strlen(name) + 1);
        return 0;
    }
    return say_missing(name, is_here, msg);
}

/* The next word of an interpreter line, NUL-terminated in place. */
static char *next_word(char **at)
{
    char *word;

    *at += strspn(*at, " \t");
    word = *at;
    *at += strcspn(*at, " \t\r\n");
    if (**at != '\0') {
        *(*at)++ = '\0';
    }
    return word;
}

/* `line` is what stands behind #!. /usr/bin/env is looked through. */
static bool is_python_line(char *line)
{
    const char *word = path_base(next_word(&line));

    if (strcmp(word, "env") == 0) {
        do {
            word = next_word(&line);
        } while (word[0] == '-' || strchr(word, '='));
        word = path_base(word);
    }
    return str_starts_with(word, "python") || str_starts_with(word, "pypy");
}

/* The first line of a script, or the first bytes, with a terminator; what cannot be
 * read is empty if it may be executed all the same. */
static int read_head(const char *path, char head[HEAD_SIZE], struct errmsg *msg)
{
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    head[0] = '\0';
    if (fd < 0 && errno == EACCES && is_executable(path)) {
        return 0;
    }
    if (fd < 0) {
        return errmsg_set(msg, -errno, "cannot read %.200s: %s", path,
                          err_text(-errno));
    }
    n = read(fd, head, HEAD_SIZE - 1);
    (void)close(fd); /* only read */
    head[MAX(n, 0)] = '\0';
    if (str_starts_with(head, "#!")) {
        head[strcspn(head, "\n")] = '\0';
    }
    return 0;
}

/* True where the kernel may know other formats than ELF and scripts: one is registered,
 * or the folder says that it cannot be told. */
static bool may_know_formats(const char *binfmt_dir)
{
    DIR *dir = opendir(binfmt_dir ? binfmt_dir : "/proc/sys/fs/binfmt_misc");
    const struct dirent *entry;
    bool any = false;

    if (!dir) {
        return errno != ENOENT; /* not mounted: none */
    }
    while (!any && (entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe): ours */
        const char *name = entry->d_name;

        any = name[0] != '.' && strcmp(name, "register") != 0 &&
              strcmp(name, "status") != 0;
    }
    (void)closedir(dir); /* only read */
    return any;
}

/* A head that the kernel knows nothing to do with: neither ELF nor a script. */
static bool is_no_format(const struct worker_command *c, const char *path,
                         const char *head)
{
    if (str_starts_with(head, "#!") || str_starts_with(head, "\177ELF")) {
        return false;
    }
    return access(path, R_OK) == 0 && !may_know_formats(c->binfmt_dir);
}

/* What execve would refuse as far as the file's head tells, before anything starts. */
static int check_executable(const struct worker_command *c, const char *path,
                            const char *head, struct errmsg *msg)
{
    char line[HEAD_SIZE];
    char *at = line + 2;
    const char *interpreter;

    if (!is_file(path)) {
        return errmsg_set(msg, ERR_INVALID, "cannot execute %.200s: it is no file",
                          path);
    }
    if (access(path, X_OK) < 0) {
        return errmsg_set(msg, -EACCES, "%.200s may not be executed; chmod +x it",
                          path);
    }
    if (is_no_format(c, path, head)) {
        return errmsg_set(msg, ERR_INVALID,
                          "cannot execute %.200s: it is neither a binary (ELF) nor a "
                          "script that begins with #!; a Python script runs without "
                          "--no-python",
                          path);
    }
    if (!str_starts_with(head, "#!")) {
        return 0;
    }
    memcpy(line, head, sizeof(line));
    interpreter = next_word(&at);
    if (!is_executable(interpreter)) {
        return errmsg_set(msg, ERR_MISSING,
                          "cannot execute %.120s: its interpreter '%.80s' (first line) "
                          "is no program",
                          path, interpreter);
    }
    return 0;
}

/* A folder is Python's: it looks for __main__.py. */
static enum runner runner_of(const char *path, const char *head)
{
    char line[HEAD_SIZE];

    if (head[0] == '\0' && is_file(path) && access(path, R_OK) < 0) {
        return RUN_DIRECTLY; /* a program that may be executed but not read */
    }
    if (str_starts_with(head, "#!")) {
        memcpy(line, head, sizeof(line));
        return is_python_line(line + 2) ? RUN_BY_PYTHON : RUN_DIRECTLY;
    }
    return str_starts_with(head, "\177ELF") ? RUN_DIRECTLY : RUN_BY_PYTHON;
}

/* Finds the program and who runs it. */
static int find_runner(const struct worker_command *c, const char *name, char *path,
                       enum runner *ret, struct errmsg *msg)
{
    char head[HEAD_SIZE] = "";
    int rv = find_program(c, name, path, msg);

    rv = rv < 0 ? rv : read_head(path, head, msg);
    if (rv < 0) {
        return rv;
    }
    *ret = c->no_python ? RUN_DIRECTLY : runner_of(path, head);
    return *ret == RUN_DIRECTLY ? check_executable(c, path, head, msg) : 0;
}

/* One that is named by its path. */
static int check_python(const char *path, struct errmsg *msg)
{
    struct stat st;

    if (strlen(path) >= PATH_MAX) {
        return errmsg_set(msg, ERR_INVALID, "PYTHON_EXEC: the path is too long");
    }
    if (stat(path, &st) < 0) {
        return errmsg_set(msg, ERR_MISSING, "PYTHON_EXEC=%.400s: %s", path,
                          errno == ENOENT ? "no such file" : err_text(-errno));
    }
    if (!is_executable(path)) {
        return errmsg_set(msg, ERR_INVALID, "PYTHON_EXEC=%.400s: %s", path,
                          S_ISREG(st.st_mode) ? "may not be executed" : "is no file");
    }
    return 0;
}

static int find_python(const struct worker_command *c, char *ret, struct errmsg *msg)
{
    if (!c->python || c->python[0] == '\0') {
        if (find_in_path(c->path, "python3", ret) ||
            find_in_path(c->path, "python", ret)) {
            return 0;
        }
        return errmsg_set(msg, ERR_MISSING,
                          "cannot find python3 or python in PATH; set PYTHON_EXEC, or "
                          "give --no-python for a program that is not Python");
    }
    if (strchr(c->python, '/')) {
        int rv = check_python(c->python, msg);

        if (rv == 0) {
            memcpy(ret, c->python, strlen(c->python) + 1);
        }
        return rv;
    }
    if (find_in_path(c->path, c->python, ret)) {
        return 0;
    }
    return errmsg_set(msg, ERR_MISSING, "PYTHON_EXEC=%.400s: no such program in PATH",
                      c->python);
}

static size_t identifier_length(const char *text)
{
    size_t n = 0;

    if (!isalpha((unsigned char)text[0]) && text[0] != '_') {
        return 0;
    }
    while (isalnum((unsigned char)text[n]) || text[n] == '_') {
        n++;
    }
    return n;
}

/* `text` begins with a '$': how many bytes of it are one placeholder, and what it means
 * (*ret_value, or itself when NULL). */
static size_t placeholder(const char *text, const char *rank, const char **ret_value)
{
    static const char name[] = "local_rank";
    bool has_brace = text[1] == '{';
    const char *id = text + 1 + has_brace;
    size_t len = identifier_length(id);

    *ret_value = NULL;
    if (text[1] == '$') {
        *ret_value = "$";
        return 2;
    }
    if (len == 0 || (has_brace && id[len] != '}')) {
        return 1;
    }
    if (len == sizeof(name) - 1 && memcmp(id, name, len) == 0) {
        *ret_value = rank;
    }
    return 1 + len + (has_brace ? 2 : 0);
}

/* As Python's string.Template(arg).safe_substitute(local_rank=rank), which torchrun
 * uses. */
static void put_substituted(struct buf *texts, const char *arg, uint32_t local_rank)
{
    struct buf out;
    char rank[16];
    bool fits = str_format(rank, sizeof(rank), "%u", local_rank);
    int rv = 0;

    ASSERT(fits);
    texts_init(&out);
    while (*arg != '\0') {
        const char *value = NULL;
        size_t len = *arg == '$' ? placeholder(arg, rank, &value) : strcspn(arg, "$");

        rv |= buf_append(&out, value ? value : arg, value ? strlen(value) : len);
        arg += len;
    }
    rv |= buf_append(&out, "", 1);
    ASSERT(rv == 0);
    texts_put(texts, (const char *)buf_bytes(&out));
    buf_release(&out);
}

/* As torchrun's --run-path does it. */
#define RUN_PATH                           \
    "import runpy, sys; del sys.argv[0]; " \
    "runpy.run_path(sys.argv[0], run_name='__main__')"

/* Python itself looks at it. */
static int find_script(const char *name, struct errmsg *msg)
{
    struct stat st;

    return stat(name, &st) == 0 ? 0
                                : errmsg_set(msg, ERR_MISSING, "cannot run %.200s: %s",
                                             name, err_text(-errno));
}

int worker_command_make(const struct worker_command *command, char *const *program,
                        uint32_t local_rank, char ***ret, struct errmsg *msg)
{
    char python[PATH_MAX];
    char path[PATH_MAX];
    enum runner runner = RUN_BY_PYTHON;
    struct buf texts;
    int rv = 0;

    if (command->run_path) {
        rv = find_script(program[0], msg);
    } else if (!command->module) {
        rv = find_runner(command, program[0], path, &runner, msg);
    }
    if (rv == 0 && runner == RUN_BY_PYTHON) {
        rv = find_python(command, python, msg);
    }
    if (rv < 0) {
        return rv;
    }
    texts_init(&texts);
    if (runner == RUN_BY_PYTHON) {
        texts_put(&texts, python);
        texts_put(&texts, "-u");
    }
    if (command->run_path) {
        texts_put(&texts, "-c");
        texts_put(&texts, RUN_PATH);
    } else if (command->module) {
        texts_put(&texts, "-m");
    }
    texts_put(&texts, command->run_path || command->module ? program[0] : path);
    for (size_t i = 1; program[i]; i++) {
        put_substituted(&texts, program[i], local_rank);
    }
    *ret = texts_block(&texts);
    return 0;
}

bool worker_command_is_engine(char *const *program)
{
    return strcmp(path_base(program[0]), "ctrun-worker") == 0;
}
