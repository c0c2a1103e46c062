#ifndef LAUNCHER_OPTIONS_COMPLETION_H
#define LAUNCHER_OPTIONS_COMPLETION_H

/* PURE. What is made of the options' table besides --help: the completions of shells
 * (--print-completion) and the man page's OPTIONS. */

#include "common/options.h"

struct verb;

/* The operator's verbs (launcher/verbs/verb_options.h), each with options of its own. */
struct verb_list {
    const struct verb *verb; /* n of them */
    size_t n;
};

/* A script for bash, to be sourced, or to lie in bash-completion's folder; one for zsh,
 * to lie in $fpath as _ctrun. mem_alloc'ed. */
char *completion_bash(const struct options *options, struct verb_list verbs);
char *completion_zsh(const struct options *options, struct verb_list verbs);

/* In scdoc's language: help and more of every option, then the verbs. mem_alloc'ed. */
char *completion_man(const struct options *options, struct verb_list verbs);

#endif
