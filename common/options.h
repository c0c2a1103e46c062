#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

/* PURE. A command line from a table; one table makes parsing, --help and the refusal by
 * name of what is not there yet. argparse's conventions: `--x=v` and `--x v`, dashes
 * and underscores alike, unique prefixes, `-x`, `-xv`, `-x v`, flags' letters together;
 * the first argument that is no option ends the options, a `--` before it is dropped.
 *
 *   static const struct option_spec specs[] = {
 *       {.name = "listen", .value = "ADDR:PORT", .help = "…", .set = on_listen},
 *       {.name = "insecure", .help = "…", .set = option_set_true,
 *        .offset = offsetof(struct my_options, insecure)},
 *       {.name = "tee", .value = "MASK", .remedy = "every rank has a log file"},
 *   };
 */

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct option_spec;

/* Called once for each time that the option is given, in order; `value` is NULL for a
 * flag. `target` is options_parse's. The text needs no name of the option: "expects a
 * number, not 'x'". OPTION_STOP ends the parsing there, well. */
typedef int (*option_cb)(void *target, const struct option_spec *spec,
                         const char *value, struct errmsg *msg);

enum { OPTION_STOP = 1 };

struct option_spec {
    const char *name;      /* with dashes, without the leading two */
    char letter;           /* 0: none */
    const char *value;     /* what --help calls the value; NULL: a flag */
    const char *help;      /* one sentence or more; wrapped */
    const char *more;      /* what the man page says behind it; NULL: nothing */
    const char *remedy;    /* with `set` NULL: not there yet, and what to do instead */
    const char *elsewhere; /* with both NULL: whose it is, and where to put it */
    option_cb set;
    bool no_variable;  /* none in the environment stands for it */
    size_t offset;     /* for the setters below: of the field in `target` … */
    size_t size;       /* … and its size (option_set_text) */
    uint32_t min, max; /* option_set_u32 */
};

struct options {
    const char *program; /* for texts that point to --help */
    const struct option_spec *specs;
    size_t n;
};

/* Parses argv[1 …]. 0, or OPTION_STOP when a callback ended it; *ret_next is the index
 * of the first argument behind the options (argc: none). ERR_INVALID with one line. */
int options_parse(const struct options *options, int argc, char *const *argv,
                  void *target, int *ret_next, struct errmsg *msg) MUST_CHECK;

/* A command line, and what stands for options in the environment: `prefix` and the name
 * in capitals with underscores (PET_MAX_RESTARTS). */
struct options_source {
    int argc;
    char *const *argv;
    const char *prefix;
    char *const *env;
};

/* … and then the variables of options that the command line has not, as argparse takes
 * a default: set but empty counts. A flag is on when its number is not 0. The line of
 * ERR_INVALID names the variable. */
int options_parse_with_env(const struct options *options,
                           const struct options_source *source, void *target,
                           int *ret_next, struct errmsg *msg) MUST_CHECK;

/* The second half of it: of the options that are not `given`. */
int options_parse_env(const struct options *options,
                      const struct options_source *source, const bool *given,
                      void *target, struct errmsg *msg) MUST_CHECK;

/* The options' part of --help, mem_alloc'ed: name, value and help in two columns.
 * Options that are not there yet are left out. */
char *options_help(const struct options *options);

/* A paragraph of --help beside them: broken into lines as wide, each with its end;
 * mem_alloc'ed. */
char *options_wrap(const char *text);

/* Setters for common kinds of field, all of them option_cb. */
int option_set_true(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg); /* bool */
int option_set_text(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg); /* char[size], not empty */
int option_set_any_text(void *target, const struct option_spec *spec, const char *value,
                        struct errmsg *msg); /* char[size], empty as if not given */
int option_set_u32(void *target, const struct option_spec *spec, const char *value,
                   struct errmsg *msg); /* uint32_t in min … max */
int option_set_help(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg); /* bool, and OPTION_STOP */

#endif
