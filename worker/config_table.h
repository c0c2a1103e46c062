#ifndef WORKER_CONFIG_TABLE_H
#define WORKER_CONFIG_TABLE_H

/* The one table of the worker's keys: parsing, checking, printing and --help all read
 * it. */

#include "worker/config.h"

#include "common/buf.h"
#include "common/yaml.h"

enum config_type {
    CONFIG_TEXT,      /* char[size]: the scalar, verbatim */
    CONFIG_CHOICE,    /* char[size]: one of `choices` */
    CONFIG_TEXTS,     /* struct text_list */
    CONFIG_INT,       /* int64_t in [min, max] */
    CONFIG_AUTO_INT,  /* the same; "auto" is 0 */
    CONFIG_AUTO_TEXT, /* char[size]: "auto" or an integer in [min, max] */
    CONFIG_NUMBER,    /* double in [min, max] */
    CONFIG_FRACTION,  /* double in [0, 1) */
    CONFIG_PAIR,      /* two doubles in [0, 1), one after the other */
    CONFIG_BOOL,
    CONFIG_BOOL_TEXT, /* char[size]: "true", "false" or an integer in [min, max] */
    CONFIG_INTERVAL,  /* struct interval: steps in [min, max], "auto", or "10m" */
};

struct config_key {
    const char *path; /* "optim.lr" */
    enum config_type type;
    size_t offset; /* of the value in struct train_config */
    size_t size;
    const char *fallback; /* the default as in a file; "[…]" is a list */
    double min, max;
    const char *choices; /* "auto|cpu|cuda" */
    const char *help;
};

enum { CONFIG_PATH_MAX = 64 };

size_t config_n_keys(void);
const struct config_key *config_key_at(size_t i);
const struct config_key *config_key_find(const char *path); /* or NULL */
bool config_is_section(const char *path);                   /* "optim" */

/* What was probably meant: other tools' names, the same name elsewhere, the nearest.
 * NULL when nothing is near. */
const char *config_key_nearest(const char *path);

/* The names in the section of "train.foo", "steps, seq_len, …", as many from the first
 * on as fit whole; "" when there is no such section. */
void config_section_keys(const char *path, char *text, size_t size);

/* "an integer", "auto or an integer", "one of a, b, c" … */
void config_key_describe(const struct config_key *key, char *text, size_t size);

/* The node's value into its field; errors name the place, the key and what is wanted.
 */
int config_key_decode(const struct config_key *key, const struct yaml_node *n,
                      struct train_config *config, struct errmsg *msg) MUST_CHECK;

/* Appends the value as it stands in a file: plain, quoted, or "[a, b]". */
void config_key_format(const struct config_key *key, const struct train_config *config,
                       struct buf *b);

#endif
