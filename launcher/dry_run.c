#include "launcher/dry_run.h"

#include "launcher/json_text.h"

#include "common/mem.h"

#include <inttypes.h>
#include <string.h>

static bool is_known(const struct dry_run_worker *w, const char *entry)
{
    size_t len = strcspn(entry, "=");

    for (size_t i = 0; i < DRY_RUN_MAX_UNKNOWN && w->unknown[i]; i++) {
        if (strlen(w->unknown[i]) == len && strncmp(w->unknown[i], entry, len) == 0) {
            return false;
        }
    }
    return true;
}

/* A word as a shell reads it. */
static void put_word(struct buf *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-+=./,:@%^";

    if (word[0] != '\0' && strspn(word, plain) == strlen(word)) {
        json_put(out, "%s", word);
        return;
    }
    json_put(out, "'");
    for (const char *c = word; *c != '\0'; c++) {
        if (*c == '\'') {
            json_put(out, "'\\''");
        } else {
            json_put(out, "%c", *c);
        }
    }
    json_put(out, "'");
}

void dry_run_put_text(struct buf *out, const struct dry_run_worker *w)
{
    if (w->rank < 0) {
        json_put(out, "local rank %u (its rank is known at the start)\n  command:",
                 w->local_rank);
    } else {
        json_put(out, "rank %" PRId64 " (local rank %u)\n  command:", w->rank,
                 w->local_rank);
    }
    for (size_t i = 0; w->argv[i]; i++) {
        json_put(out, " ");
        put_word(out, w->argv[i]);
    }
    json_put(out, "\n  device:  %s\n  CPUs:    %s\n", w->device,
             w->cpus[0] != '\0' ? w->cpus : "not bound");
    for (size_t i = 0; w->env[i]; i++) {
        if (is_known(w, w->env[i])) {
            json_put(out, "  %s\n", w->env[i]);
        } else {
            json_put(out, "  %.*s  (known at the start)\n",
                     (int)strcspn(w->env[i], "="), w->env[i]);
        }
    }
}

static void put_variable(struct buf *out, const struct dry_run_worker *w,
                         const char *entry)
{
    size_t len = strcspn(entry, "=");
    char *name = mem_printf("%.*s", (int)len, entry);

    json_put_text(out, name);
    mem_free(name);
    json_put(out, ": ");
    json_put_text(out, is_known(w, entry) ? entry + len + 1 : NULL);
}

void dry_run_put_json(struct buf *out, const struct dry_run_worker *w)
{
    if (w->rank < 0) {
        json_put(out, "{\"rank\": null");
    } else {
        json_put(out, "{\"rank\": %" PRId64, w->rank);
    }
    json_put(out, ", \"local_rank\": %u, \"command\": [", w->local_rank);
    for (size_t i = 0; w->argv[i]; i++) {
        if (i > 0) {
            json_put(out, ", ");
        }
        json_put_text(out, w->argv[i]);
    }
    json_put(out, "], \"device\": ");
    json_put_text(out, w->device);
    json_put(out, ", \"cpus\": ");
    json_put_text(out, w->cpus[0] != '\0' ? w->cpus : NULL);
    json_put(out, ", \"env\": {");
    for (size_t i = 0; w->env[i]; i++) {
        if (i > 0) {
            json_put(out, ", ");
        }
        put_variable(out, w, w->env[i]);
    }
    json_put(out, "}}");
}
