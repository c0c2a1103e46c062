/* What a server answers an operator, on a terminal: whatever it is, nothing but text
 * and line ends comes out. */

#include "launcher/verbs/show.h"

#include "common/check.h"
#include "common/utf8.h"

enum { MAX_OUT = 1 << 20 };

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct buf *out)
{
    const uint8_t *text = buf_bytes(out);
    size_t size = buf_len(out);

    for (size_t at = 0; at < size;) {
        uint32_t code = 0;
        size_t n = utf8_decode(text + at, size - at, &code);

        ASSERT(n > 0);
        ASSERT(code == '\n' || !utf8_is_wild(code));
        at += n;
    }
}

static void show_all(const json_t *json, const struct show_style *style)
{
    struct buf out;
    bool is_note;

    buf_init(&out, MAX_OUT);
    show_jobs(json, style, &out);
    show_job(json, style, &out);
    show_ranks(json, style, &out);
    show_history(json, "", style, &out);
    show_event(json, style, &out);
    show_log_line(json, style, &out, &is_note);
    show_done(json, true, &out);
    check(&out);
    buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct show_style style = {.is_terminal = true, .has_prefix = true, .wall_ms = 1};
    json_t *json;

    if (size == 0) {
        return 0;
    }
    style.width = data[0];
    json = json_loadb((const char *)data + 1, size - 1, JSON_DECODE_ANY, NULL);
    if (json) {
        show_all(json, &style);
    }
    json_decref(json);
    return 0;
}
