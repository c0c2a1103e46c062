#include "launcher/output/line_filter.h"

#include "common/mem.h"

#include <string.h>

void line_filter_init(struct line_filter *f, const char *list)
{
    size_t n = 0;

    list = list ? list : "";
    f->texts = mem_zalloc(strlen(list) + 2);
    while (*list != '\0') {
        bool is_comma = list[0] == ',' && list[1] == ',';
        bool is_end = list[0] == ',' && !is_comma;

        if (!is_end) {
            f->texts[n++] = *list;
        } else if (n > 0 && f->texts[n - 1] != '\0') { /* else nothing stood there */
            f->texts[n++] = '\0';
        }
        list += is_comma ? 2 : 1;
    }
}

void line_filter_release(struct line_filter *f)
{
    mem_free(f->texts);
    f->texts = NULL;
}

bool line_filter_matches(const struct line_filter *f, const char *line, size_t size)
{
    for (const char *text = f->texts; *text != '\0'; text += strlen(text) + 1) {
        if (memmem(line, size, text, strlen(text))) {
            return true;
        }
    }
    return false;
}
