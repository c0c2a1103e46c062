/* Events as torchrun's console handler writes them. */

#include "launcher/events.h"
#include "launcher/json_text.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <string.h>

static const struct topology topology = {.group_rank = 1,
                                         .group_world = 2,
                                         .first_rank = 4,
                                         .nproc = 4,
                                         .world_size = 8,
                                         .role_first_rank = 0,
                                         .role_world_size = 4};

static void event_of_a_worker_has_torchruns_fields(void **state)
{
    struct event_worker worker = {.local_rank = 2, .pid = 77, .exit_code = -9};
    struct event e = {.state = "FAILED",
                      .wall_ms = 1700000000123,
                      .topology = &topology,
                      .worker = &worker,
                      .run_id = "job7",
                      .role = "actor",
                      .host = "n\"1",
                      .program = "train.py",
                      .backend = "c10d",
                      .restarts = 3,
                      .raw_error = "boom"};
    char *text = event_format(&e);

    (void)state;
    assert_string_equal(
        text,
        "{\"name\": \"torchelastic.worker.status.FAILED\", \"source\": \"WORKER\", "
        "\"timestamp\": 1700000000123, \"metadata\": {\"run_id\": \"job7\", "
        "\"global_rank\": 6, \"group_rank\": 1, \"worker_id\": \"2\", \"role\": "
        "\"actor\", \"hostname\": \"n\\\"1\", \"state\": \"FAILED\", "
        "\"total_run_time\": 0, \"rdzv_backend\": \"c10d\", \"raw_error\": \"boom\", "
        "\"metadata\": \"{\\\"group_world_size\\\": 2, \\\"entry_point\\\": "
        "\\\"train.py\\\", \\\"local_rank\\\": [2], \\\"role_rank\\\": [2], "
        "\\\"role_world_size\\\": [4], \\\"exit_code\\\": [-9], \\\"worker_pid\\\": "
        "[77]}\", \"agent_restarts\": 3, \"duration_ms\": null}}\n");
    mem_free(text);
}

static void event_of_the_agent_names_no_rank(void **state)
{
    struct event e = {.state = "SUCCEEDED",
                      .run_id = "j",
                      .role = "default",
                      .host = "h",
                      .program = "a",
                      .backend = "static",
                      .run_time_s = 5};
    char *text = event_format(&e);

    (void)state;
    assert_string_equal(
        text,
        "{\"name\": \"torchelastic.worker.status.SUCCEEDED\", \"source\": \"AGENT\", "
        "\"timestamp\": 0, \"metadata\": {\"run_id\": \"j\", \"global_rank\": null, "
        "\"group_rank\": null, \"worker_id\": null, \"role\": \"default\", "
        "\"hostname\": \"h\", \"state\": \"SUCCEEDED\", \"total_run_time\": 5, "
        "\"rdzv_backend\": \"static\", \"raw_error\": null, \"metadata\": "
        "\"{\\\"group_world_size\\\": 0, \\\"entry_point\\\": \\\"a\\\"}\", "
        "\"agent_restarts\": 0, \"duration_ms\": null}}\n");
    mem_free(text);
}

static void texts_of_any_bytes_become_json(void **state)
{
    static const struct {
        const char *text, *json;
    } cases[] = {
        {NULL, "null"},
        {"", "\"\""},
        {"a\"\\b\x7f", "\"a\\\"\\\\b\\u007f\""},
        {"\a\b\t\n\v\f\r\033", "\"\\u0007\\b\\t\\n\\u000b\\f\\r\\u001b\""},
        {"\xc3\xa9 \xe2\x80\xa6 \xf0\x9f\x98\x80",
         "\"\\u00e9 \\u2026 \\ud83d\\ude00\""},
        {"\xff-\xc3", "\"\\ufffd-\\ufffd\""},                     /* no UTF-8 */
        {"\xc0\xaf", "\"\\ufffd\\ufffd\""},                       /* too long */
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},            /* a surrogate */
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* no plane */
        {"\xf9\x80\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* no first byte */
    };
    struct buf out;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        buf_init(&out, 1000);
        json_put_text(&out, cases[i].text);
        assert_int_equal(buf_len(&out), strlen(cases[i].json));
        assert_memory_equal(buf_bytes(&out), cases[i].json, buf_len(&out));
        buf_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_of_a_worker_has_torchruns_fields),
        cmocka_unit_test(event_of_the_agent_names_no_rank),
        cmocka_unit_test(texts_of_any_bytes_become_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
