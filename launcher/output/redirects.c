#include "launcher/output/redirects.h"

#include "common/check.h"

#include <stdio.h>
#include <string.h>

enum { MAX_RANK = 9999999 };

static void skip_spaces(const char **at)
{
    while (**at == ' ') {
        ++*at;
    }
}

static bool take_number(const char **at, uint32_t *ret)
{
    uint32_t v = 0;
    const char *start;

    skip_spaces(at); /* as Python's int() does */
    start = *at;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        v = v * 10 + (uint32_t)(**at - '0');
        if (v > MAX_RANK) {
            return false;
        }
    }
    *ret = v;
    return *at > start;
}

static bool take(const char **at, char c)
{
    bool is_there;

    skip_spaces(at);
    is_there = **at == c;
    *at += is_there ? 1 : 0;
    return is_there;
}

/* MASK or LOCAL_RANK:MASK,…: the last word on that rank. False: the text is neither. */
static bool read_mask(const char *text, uint32_t local_rank, unsigned *ret)
{
    const char *at = text;
    uint32_t rank;
    uint32_t mask;

    *ret = 0;
    if (!take_number(&at, &mask)) {
        return false;
    }
    if (*at == '\0') {
        *ret = mask;
        return mask <= 3;
    }
    for (at = text; *at != '\0';) {
        if (!take_number(&at, &rank) || !take(&at, ':') || !take_number(&at, &mask) ||
            mask > 3 || (!take(&at, ',') && *at != '\0')) {
            return false;
        }
        *ret = rank == local_rank ? mask : *ret;
    }
    return true;
}

/* Whether some rank from `low` to `high` is listed. False: the text is no list of
 * ranks. */
static bool read_ranks(const char *text, uint32_t low, uint32_t high, bool *ret_has)
{
    const char *at = text;
    bool goes_on = true;

    *ret_has = false;
    while (goes_on) {
        uint32_t first;
        uint32_t last;

        if (!take_number(&at, &first)) {
            return false;
        }
        last = first;
        if (take(&at, '-') && !take_number(&at, &last)) {
            return false;
        }
        if (last < first) {
            return false;
        }
        *ret_has = *ret_has || (high >= first && low <= last);
        goes_on = take(&at, ',');
    }
    return *at == '\0';
}

int redirects_check_mask(const char *text, struct errmsg *msg)
{
    unsigned mask;

    if (!read_mask(text, 0, &mask)) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects 0 (neither), 1 (stdout), 2 (stderr) or 3 (both), or "
                          "LOCAL_RANK:MASK,… as 0:3,1:2; not '%.80s'",
                          text);
    }
    return 0;
}

int redirects_check_ranks(const char *text, struct errmsg *msg)
{
    bool has;

    if (!read_ranks(text, 0, 0, &has)) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects ranks as 0,2 or 0-3,8; not '%.80s'", text);
    }
    return 0;
}

int redirects_check_console(const char *text, struct errmsg *msg)
{
    bool has;

    if (strcmp(text, "all") != 0 && strcmp(text, "none") != 0 &&
        !read_ranks(text, 0, 0, &has)) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects all, none, or ranks as 0,2 or 0-3,8; not '%.80s'",
                          text);
    }
    return 0;
}

/* True for a stream that the text, if there is one, speaks of. */
static bool is_masked(const char *text, const struct redirects_stream *stream)
{
    unsigned mask = 0;
    bool is_valid = !text || read_mask(text, stream->local_rank, &mask);

    ASSERT(is_valid);
    return (mask >> stream->number & 1U) != 0;
}

static bool is_any_listed(const char *text, uint32_t low, uint32_t high)
{
    bool has = true;
    bool is_valid = !text || read_ranks(text, low, high, &has);

    ASSERT(is_valid);
    return has;
}

static bool is_listed(const char *text, uint32_t rank)
{
    return is_any_listed(text, rank, rank);
}

static bool is_on_console(const struct redirects *r,
                          const struct redirects_stream *stream)
{
    if (!r->console || strcmp(r->console, "all") == 0) {
        return true;
    }
    return strcmp(r->console, "none") != 0 && is_listed(r->console, stream->rank);
}

bool redirects_explain(const struct redirects *r, const struct redirects_ranks *ranks,
                       char *ret, size_t size)
{
    bool is_list =
        r->console && strcmp(r->console, "all") != 0 && strcmp(r->console, "none") != 0;
    const struct {
        const char *option, *list, *kind;
        uint32_t n;
    } all[] = {
        {"--console", is_list ? r->console : NULL, "the job's ranks", ranks->n_world},
        {"--ranks-filter", r->ranks, "the job's ranks", ranks->n_world},
        {"--local-ranks-filter", r->local_ranks, "the local ranks here",
         ranks->n_local},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (!is_any_listed(all[i].list, 0, all[i].n - 1)) {
            (void)snprintf(ret, size,
                           "%s=%.80s names none of %s, which are 0 to %u: nothing that "
                           "the workers say is shown%s",
                           all[i].option, all[i].list, all[i].kind, all[i].n - 1,
                           r->has_no_files ? "" : " (their files have it)");
            return true;
        }
    }
    return false;
}

struct redirects_route redirects_route(const struct redirects *r,
                                       const struct redirects_stream *stream)
{
    struct redirects_route route = {.to_file = !r->has_no_files};
    bool is_chosen = r->console || r->ranks || r->local_ranks;
    bool is_let_through = is_listed(r->ranks, stream->rank) &&
                          is_listed(r->local_ranks, stream->local_rank);
    bool is_redirected = route.to_file && is_masked(r->redirects, stream);
    bool is_teed;

    ASSERT(stream->number < 2);
    is_teed = route.to_file && is_masked(r->tee, stream);
    route.is_teed = is_teed && is_let_through;
    route.to_console =
        (is_teed || !is_redirected) && is_let_through && is_on_console(r, stream);
    if (stream->is_engine && !is_chosen && !is_teed) {
        route.to_console = route.to_console && stream->rank == 0;
    }
    return route;
}
