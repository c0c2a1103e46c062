#ifndef TESTS_LIB_OPTIONS_RIG_H
#define TESTS_LIB_OPTIONS_RIG_H

/* ctrun's command lines: what is accepted, and in which words another is refused. */

#include "launcher/options/options.h"

enum { OPTIONS_RIG_ARGS = 16 };

struct options_rig_line {
    const char *args[OPTIONS_RIG_ARGS]; /* without the program's own name */
};

void options_rig_accept(const struct options_rig_line *line, struct launch_options *o);
void options_rig_refuse(const struct options_rig_line *line, const char *text);

#define ACCEPT(o, ...) \
    options_rig_accept(&(const struct options_rig_line){{__VA_ARGS__}}, o)
#define REFUSE(text, ...) \
    options_rig_refuse(&(const struct options_rig_line){{__VA_ARGS__}}, text)

/* The only variable, "NAME=VALUE", for what follows; NULL: none. */
void options_rig_set_variable(const char *text);

#endif
