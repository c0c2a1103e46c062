/* What a server answered, as tables. */

#include "launcher/verbs/show.h"
#include "tests/lib/cmocka.h"

#include <string.h>

enum { MAX_OUT = 64 * 1024 };

static json_t *parse(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);

    assert_non_null(json);
    return json;
}

/* Where the text begins in the line. */
static size_t column_of(const char *line, const char *text)
{
    const char *at = strstr(line, text);

    assert_non_null(at);
    assert_null(memchr(line, '\n', (size_t)(at - line)));
    return (size_t)(at - line);
}

/* … and where it ends. */
static size_t end_of(const char *line, const char *text)
{
    return column_of(line, text) + strlen(text);
}

static void each_job_is_a_row_below_the_titles(void **state)
{
    const struct show_style style = {.wall_ms = 100000};
    json_t *root = parse(
        "{\"jobs\": [{\"id\": \"first\", \"state\": \"running\", \"generation\": 1,"
        "\"nodes\": 2, \"min_nodes\": 2, \"max_nodes\": 2, \"ranks\": 16,"
        "\"step\": 7007, \"loss\": 2.5, \"tok_s\": 41234, \"committed_step\": 6006,"
        "\"restarts\": {\"failure\": 1}, \"failures\": 1, \"max_restarts\": 3,"
        "\"began_ms\": 70000, \"cause\": {\"text\": \"rank 3\"}},"
        "{\"id\": \"second\", \"state\": \"forming\"}]}");
    struct buf out;
    const char *titles;
    const char *first;
    const char *second;

    (void)state;
    buf_init(&out, MAX_OUT);
    show_jobs(root, &style, &out);
    assert_int_equal(buf_append(&out, "", 1), 0);
    titles = (const char *)buf_bytes(&out);
    first = strchr(titles, '\n') + 1;
    second = strchr(first, '\n') + 1;
    assert_int_equal(end_of(titles, "STEP"), end_of(first, "7007"));
    assert_int_equal(end_of(titles, "LOSS"), end_of(first, "2.5000"));
    assert_int_equal(end_of(titles, "TOK/S"), end_of(first, "41234"));
    assert_int_equal(end_of(titles, "SAVED"), end_of(first, "6006"));
    assert_int_equal(column_of(titles, "SINCE"), column_of(first, "30 s"));
    assert_int_equal(column_of(titles, "LAST CAUSE"), column_of(first, "rank 3"));
    assert_int_equal(column_of(second, "second"), 0);
    assert_string_equal(strchr(second, '\n'), "\n"); /* no row of what is left */
    buf_release(&out);
    json_decref(root);
}

static const char hanging[] =
    "{\"jobs\": [{\"id\": \"stands\", \"state\": \"running\", \"cause\": {\"text\": \"old\"},"
    "\"hang\": {\"text\": \"rank 1 on b hangs\", \"rank\": 1}}],"
    "\"ranks\": [{\"rank\": 0, \"phase\": \"reduce\", \"waits_for\": 1, \"loss\": null},"
    "{\"rank\": 1, \"phase\": \"forward\", \"hangs\": true},"
    "{\"rank\": 2, \"away\": true}]}";

/* What `show` makes of it, with a terminator. */
static const char *shown(struct buf *out,
                         void (*show)(const json_t *, const struct show_style *,
                                      struct buf *),
                         const json_t *json)
{
    const struct show_style style = {.wall_ms = 100000};

    buf_clear(out);
    show(json, &style, out);
    assert_int_equal(buf_append(out, "", 1), 0);
    return (const char *)buf_bytes(out);
}

static void a_hang_is_shown_in_place_of_what_was_before(void **state)
{
    json_t *root = parse(hanging);
    const json_t *job = json_array_get(json_object_get(root, "jobs"), 0);
    struct buf out;
    const char *text;

    (void)state;
    buf_init(&out, MAX_OUT);
    text = strchr(shown(&out, show_jobs, root), '\n') + 1;
    (void)column_of(text, "stands  hangs ");
    (void)column_of(text, "rank 1 on b hangs");
    assert_null(strstr(text, "old"));
    text = shown(&out, show_job, job);
    assert_non_null(strstr(text, "state        hangs\n"));
    assert_non_null(strstr(text, "what hangs   rank 1 on b hangs\nlast cause   old\n"));
    text = shown(&out, show_ranks, root);
    assert_non_null(strstr(text, "nan"));
    assert_non_null(strstr(text, "reduce, waits for 1"));
    assert_non_null(strstr(text, "forward, hangs"));
    assert_non_null(strstr(text, "node away"));
    buf_release(&out);
    json_decref(root);
}

static void of_a_job_that_runs_is_not_said_that_none_has_ended(void **state)
{
    const struct show_style style = {0};
    json_t *root = parse("{\"jobs\": []}");
    struct buf out;

    (void)state;
    buf_init(&out, MAX_OUT);
    show_history(root, "", &style, &out);
    show_history(root, "train", &style, &out);
    assert_int_equal(buf_append(&out, "", 1), 0);
    assert_string_equal((const char *)buf_bytes(&out),
                        "no job has ended\n"
                        "job train has not ended yet: ctrun status train shows how it "
                        "is\n");
    buf_release(&out);
    json_decref(root);
}

static void an_event_says_which_node_of_its_host_is_meant(void **state)
{
    const struct show_style style = {0};
    json_t *event =
        parse("{\"kind\": \"node_lost\", \"job\": \"train\", \"node\": \"vm\","
              "\"group_rank\": 0, \"text\": \"silent\"}");
    struct buf out;

    (void)state;
    buf_init(&out, MAX_OUT);
    show_event(event, &style, &out);
    assert_int_equal(buf_append(&out, "", 1), 0);
    assert_non_null(strstr((const char *)buf_bytes(&out),
                           "node_lost  on vm (group rank 0)  silent\n"));
    buf_release(&out);
    json_decref(event);
}

/* Columns of the widest line; each cell is ASCII but for an ellipsis. */
static size_t width_of(const char *text)
{
    size_t widest = 0;
    size_t n = 0;

    for (; *text != '\0'; text++) {
        n = *text == '\n' ? 0 : n + ((*text & 0xc0) != 0x80);
        widest = MAX(widest, n);
    }
    return widest;
}

static void tables_are_no_wider_than_the_terminal(void **state)
{
    json_t *root = parse(
        "{\"jobs\": [{\"id\": \"a-job-of-a-long-name\", \"state\": \"cancelled\","
        "\"exit_code\": 95, \"ended_ms\": 99000, \"began_ms\": 70000, \"nodes\": 2,"
        "\"min_nodes\": 2, \"max_nodes\": 2, \"ranks\": 16,"
        "\"restarts\": {\"failure\": 1}, \"failures\": 1, \"max_restarts\": 3,"
        "\"cause\": {\"text\": \"rank 3 on a host of a long name ended with 1\"}}]}");
    struct buf out;

    (void)state;
    buf_init(&out, MAX_OUT);
    for (size_t width = 4; width <= 100; width++) {
        const struct show_style style = {.wall_ms = 100000, .width = width};

        buf_clear(&out);
        show_history(root, "", &style, &out);
        show_jobs(root, &style, &out);
        assert_int_equal(buf_append(&out, "", 1), 0);
        assert_in_range(width_of((const char *)buf_bytes(&out)), 1, width);
    }
    buf_release(&out);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_job_is_a_row_below_the_titles),
        cmocka_unit_test(a_hang_is_shown_in_place_of_what_was_before),
        cmocka_unit_test(an_event_says_which_node_of_its_host_is_meant),
        cmocka_unit_test(tables_are_no_wider_than_the_terminal),
        cmocka_unit_test(of_a_job_that_runs_is_not_said_that_none_has_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
