/* What comes in lines: events, ranks' output, what was done. */

#include "launcher/verbs/show.h"
#include "launcher/verbs/value.h"

#include "common/check.h"
#include "common/utf8.h"

#include <string.h>

static void put_some(struct buf *out, const json_t *json, const char *key,
                     const char *name)
{
    struct value v = {.json = json, .key = key};
    const char *text = value_as_number(&v);

    if (text[0] != '\0') {
        value_put(out, "  %s %s", name, text);
    }
}

void show_event(const json_t *event, const struct show_style *style, struct buf *out)
{
    const char *kind = value_text(event, "kind");
    const char *text = value_text(event, "text");
    const char *node = value_text(event, "node");
    struct value v = {.json = event, .key = "wall_ms"};
    const char *number;

    value_put(out, "%s  ", value_as_time(&v));
    table_write_text(out, value_text(event, "job"), TABLE_PLAIN, false);
    value_put(out, "  ");
    table_write_text(out, kind, value_colour(kind), style->has_colours);
    put_some(out, event, "generation", "generation");
    put_some(out, event, "nodes", "nodes");
    put_some(out, event, "ranks", "ranks");
    put_some(out, event, "step", "step");
    put_some(out, event, "exit_code", "exit code");
    if (node[0] != '\0') {
        value_put(out, "  on ");
        table_write_text(out, node, TABLE_PLAIN, false);
    }
    v.key = "group_rank";
    number = value_as_number(&v);
    if (number[0] != '\0') { /* a host may have several */
        value_put(out, " (group rank %s)", number);
    }
    if (text[0] != '\0') {
        value_put(out, "  ");
        table_write_text(out, text, TABLE_PLAIN, false);
    }
    value_put(out, "\n");
}

void show_log_line(const json_t *line, const struct show_style *style, struct buf *out,
                   bool *ret_is_note)
{
    const json_t *text = json_object_get(line, "text");
    const char *note = value_text(line, "note");
    int rv;

    *ret_is_note = !json_is_string(text);
    if (*ret_is_note) {
        value_put(out, "rank %lld ", (long long)value_number(line, "rank"));
        table_write_text(out, note, TABLE_PLAIN, false);
        return;
    }
    if (style->has_prefix) {
        value_put(out, "[%lld] ", (long long)value_number(line, "rank"));
    }
    if (style->is_terminal) {
        rv = utf8_tame(out, json_string_value(text), json_string_length(text));
    } else {
        rv = buf_append(out, json_string_value(text), json_string_length(text));
    }
    (void)rv; /* past the buffer's ceiling the rest is missing */
    value_put(out, "\n");
}

void show_node(const json_t *node, struct buf *out)
{
    struct value v = {.json = node, .key = "group_rank"};
    bool has_number = value_number(node, "group_rank") >= 0;

    value_put(out, "node %s%s", has_number ? value_as_number(&v) : "",
              has_number ? " (" : "");
    table_write_text(out, value_text(node, "host"), TABLE_PLAIN, false);
    value_put(out, "%sof job ", has_number ? ") " : " ");
    table_write_text(out, value_text(node, "job"), TABLE_PLAIN, false);
}

void show_done(const json_t *item, bool is_node, struct buf *out)
{
    bool is_draining = strcmp(value_text(item, "state"), "draining") == 0;

    if (is_node) {
        show_node(item, out);
        value_put(out, " was told to leave\n");
    } else {
        value_put(out, "job ");
        table_write_text(out, value_text(item, "job"), TABLE_PLAIN, false);
        value_put(out, "%s",
                  is_draining ? " is being cancelled: its workers save and end\n"
                              : " was cancelled\n");
    }
}
