#include "worker/config_diff.h"

#include "common/check.h"
#include "common/str.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Activation checkpointing fits a run to the machine's memory, and changes no bit. */
static bool is_about_the_machine(const char *key)
{
    static const char *const groups[] = {"run.",
                                         "checkpoint.",
                                         "log.",
                                         "device.",
                                         "comm.",
                                         "sample.",
                                         "train.activation_checkpointing"};

    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        if (str_starts_with(key, groups[i])) {
            return true;
        }
    }
    return false;
}

static size_t list(const json_t *before, json_t *now, char *text, size_t size)
{
    const char *comma;
    const char *key;
    json_t *value;
    size_t used = 0;
    size_t n = 0;

    json_object_foreach(now, key, value)
    {
        const json_t *old = json_object_get(before, key);

        if (is_about_the_machine(key) || (old && json_equal(old, value))) {
            continue;
        }
        comma = used > 0 ? ", " : "";
        if (used + strlen(comma) + strlen(key) < size) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", comma, key);
        }
        n++;
    }
    return n;
}

size_t config_diff(const char *before, const char *now, char *text, size_t size)
{
    json_t *old = json_loads(before, JSON_REJECT_DUPLICATES, NULL);
    json_t *new = json_loads(now, JSON_REJECT_DUPLICATES, NULL);
    size_t n = 0;

    text[0] = '\0';
    if (json_is_object(old) && json_is_object(new)) {
        n = list(old, new, text, size);
    }
    json_decref(old);
    json_decref(new);
    return n;
}
