#include "tests/lib/config_rig.h"

#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ARGS = 16 };

struct scratch config_rig_scratch;
struct worker_options config_rig_options;

int config_rig_open(void **state)
{
    (void)state;
    scratch_open(&config_rig_scratch);
    return 0;
}

int config_rig_close(void **state)
{
    (void)state;
    scratch_close(&config_rig_scratch);
    return 0;
}

int config_rig_parse(const char *line, struct errmsg *msg)
{
    char copy[2048];
    char path[128];
    char *argv[MAX_ARGS + 1] = {copy};
    int argc = 1;
    char *item = copy;

    *msg = (struct errmsg){0};
    assert_in_range(snprintf(copy, sizeof(copy), "%s", line), 0, sizeof(copy) - 1);
    (void)snprintf(path, sizeof(path), "--config-path=%s", config_rig_scratch.dir);
    while (item && line[0]) {
        assert_in_range(argc, 1, MAX_ARGS - 1);
        argv[argc++] = item;
        item = strchr(item, '|');
        if (item) {
            *item++ = '\0';
        }
        if (strcmp(argv[argc - 1], "@") == 0) {
            argv[argc - 1] = path;
        }
    }
    return config_parse(argc, argv, &config_rig_options, msg);
}

const struct train_config *must_parse(const char *line)
{
    struct errmsg msg;

    if (config_rig_parse(line, &msg) != 0) {
        fail_msg("%s", msg.text);
    }
    return &config_rig_options.config;
}

static void assert_text(const char *text, const char *expected)
{
    char full[1024];
    size_t n = 0;

    for (const char *c = expected;
         *c && n + sizeof(config_rig_scratch.dir) < sizeof(full); c++) {
        if (c[0] == '@' && strchr("/ ", c[1])) {
            memcpy(full + n, config_rig_scratch.dir, strlen(config_rig_scratch.dir));
            n += strlen(config_rig_scratch.dir);
        } else {
            full[n++] = *c;
        }
    }
    full[n] = '\0';
    assert_string_equal(text, full);
}

void assert_refused(const char *line, const char *expected)
{
    struct errmsg msg;

    assert_int_equal(config_rig_parse(line, &msg), ERR_INVALID);
    assert_text(msg.text, expected);
}

void assert_file_refused(const char *text, const char *expected)
{
    (void)scratch_text(&config_rig_scratch, "x.yaml", text);
    assert_refused("@|--config-name=x", expected);
}
