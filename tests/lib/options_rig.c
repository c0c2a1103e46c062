#include "tests/lib/options_rig.h"

#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

static char variable[256];
static char *variables[2];

void options_rig_set_variable(const char *text)
{
    (void)snprintf(variable, sizeof(variable), "%s", text ? text : "");
    variables[0] = text ? variable : NULL;
}

static int parse(const struct options_rig_line *line, struct launch_options *o,
                 struct errmsg *msg)
{
    static char *argv[OPTIONS_RIG_ARGS + 2];
    int argc = 1;

    argv[0] = NULL; /* is not looked at */
    for (size_t i = 0; i < OPTIONS_RIG_ARGS && line->args[i]; i++) {
        memcpy(&argv[argc], &line->args[i], sizeof(argv[0]));
        argc++;
    }
    argv[argc] = NULL;
    memset(o, 0xee, sizeof(*o));
    msg->text[0] = '\0';
    return launch_options_parse(argc, argv, variables, o, msg);
}

void options_rig_accept(const struct options_rig_line *line, struct launch_options *o)
{
    struct errmsg msg;
    int rv = parse(line, o, &msg);

    if (rv < 0) {
        print_error("%s\n", msg.text);
    }
    assert_int_equal(rv, 0);
}

void options_rig_refuse(const struct options_rig_line *line, const char *text)
{
    struct launch_options o;
    struct errmsg msg;

    assert_int_equal(parse(line, &o, &msg), ERR_INVALID);
    assert_string_equal(msg.text, text);
}
