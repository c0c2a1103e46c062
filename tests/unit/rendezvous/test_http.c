/* Heads of HTTP requests and responses; tests/fuzz/fuzz_http.c has the hostile ones. */

#include "rendezvous/http.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"
#include "common/err.h"

#include <stdio.h>
#include <string.h>

static int status_of(const char *text, struct http_request *ret)
{
    int status = -1;
    size_t n = http_parse((const uint8_t *)text, strlen(text), ret, &status);

    return n == 0 ? -1 : status;
}

static void a_request_is_read(void **state)
{
    static const char text[] = "GET /api/v1/jobs/a%2Fb?after=3&x HTTP/1.1\r\n"
                               "Host: 127.0.0.1:29401\r\n"
                               "User-Agent:  curl/8 \t\r\n"
                               "X-Empty:\r\n\r\nGET ";
    struct http_request q;
    int status;

    (void)state;
    assert_int_equal(http_parse((const uint8_t *)text, strlen(text), &q, &status),
                     strlen(text) - 4);
    assert_int_equal(status, 0);
    assert_string_equal(q.path, "/api/v1/jobs/a%2Fb");
    assert_string_equal(q.query, "after=3&x");
    assert_string_equal(q.host, "127.0.0.1");
    assert_false(q.is_head);
    assert_true(q.keeps_alive);
}

static void no_beginning_of_a_request_is_refused(void **state)
{
    static const char text[] = "HEAD / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n";
    struct http_request q;
    int status;

    (void)state;
    for (size_t size = 0; size < strlen(text); size++) {
        assert_int_equal(http_parse((const uint8_t *)text, size, &q, &status), 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(status_of(text, &q), 0);
    assert_true(q.is_head);
    assert_string_equal(q.host, "::1");
}

static const struct request_case {
    const char *text;
    int status;
    bool keeps_alive;
} request_cases[] = {
    {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0, true},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 0, false},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: x , CLOSE\r\n\r\n", 0, false},
    {"GET / HTTP/1.0\r\n\r\n", 0, false},
    {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 0, true},
    {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 0, true},
    {"POST / HTTP/1.1\r\nHost: a\r\n\r\n", 405, false},
    {"get / HTTP/1.1\r\nHost: a\r\n\r\n", 405, false},
    {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400, false},
    {"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, false},
    {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, false},
    {"GET / HTTP/1.10\r\nHost: a\r\n\r\n", 505, false},
    {"GET /\r\n\r\n", 400, false},
    {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400, false},
    {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 505, false},
    {"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400, false},
    {"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400, false},
    {"GET / HTTP/1.1\r\n\r\n", 400, false}, /* no Host */
    {"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, false},
    {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, false},
    {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400, false},
    {"GET / HTTP/1.1\nHost: a\n\n", 400, false}, /* bare line feeds */
    {"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400, false},
    {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, false},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", 400, false},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400, false},
    {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 413, false},
    {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 00\r\n\r\n", 413, false},
    {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 413, false},
    {"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", 417, false},
};

static void what_could_be_read_in_two_ways_is_refused(void **state)
{
    struct http_request q;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(request_cases); i++) {
        int status = status_of(request_cases[i].text, &q);

        if (status != request_cases[i].status ||
            q.keeps_alive != request_cases[i].keeps_alive) {
            fail_msg("%s: status %d, keeps alive: %d", request_cases[i].text, status,
                     q.keeps_alive);
        }
    }
}

static const struct host_case {
    const char *value;
    const char *host; /* NULL: 400 */
} host_cases[] = {
    {"localhost", "localhost"},
    {"localhost:29401", "localhost"},
    {"localhost:65535", "localhost"},
    {"localhost:0080", "localhost"},
    {"localhost:", "localhost"}, /* RFC 3986, 3.2.3: the digits may be missing */
    {"[::1]", "::1"},
    {"[::1]:29401", "::1"},
    {"[::1]:", "::1"},
    {"localhost:1@evil", NULL},
    {"localhost:@evil", NULL},
    {"localhost:65536", NULL},
    {"localhost:99999999999999999999", NULL},
    {"localhost:+1", NULL},
    {"localhost:-1", NULL},
    {"localhost: 1", NULL},
    {"localhost:1 2", NULL},
    {"localhost:1,evil", NULL},
    {"localhost:1:2", NULL},
    {"localhost::", NULL},
    {"[::1]:99999", NULL},
    {"[::1]:1@evil", NULL},
    {"[::1]evil", NULL},
    {"[::1]1", NULL},
    {"[::1]]", NULL},
    {"[::1", NULL},
    {"[]", NULL},
    {"[", NULL},
    {"[localhost]", NULL},
    {"::1", NULL}, /* wants brackets */
    {":1", NULL},
};

static void a_host_has_a_port_or_nothing_behind_it(void **state)
{
    struct http_request q;
    char text[128];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(host_cases); i++) {
        const struct host_case *c = &host_cases[i];
        int status;

        (void)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s\r\n\r\n",
                       c->value);
        status = status_of(text, &q);
        if (status != (c->host ? 0 : 400) ||
            (c->host && strcmp(q.host, c->host) != 0)) {
            fail_msg("%s: status %d, host '%s'", c->value, status, q.host);
        }
    }
}

static void a_head_is_bounded_in_bytes_and_fields(void **state)
{
    char text[HTTP_MAX_HEAD + 64] = "GET / HTTP/1.1\r\nHost: a\r\n";
    struct http_request q;

    (void)state;
    for (int i = 0; i < HTTP_MAX_FIELDS; i++) {
        strcat(text, "a: b\r\n");
    }
    assert_int_equal(status_of(text, &q), 431);
    (void)snprintf(text, sizeof(text), "GET /%0*d HTTP/1.1\r\n", HTTP_TARGET_MAX, 0);
    assert_int_equal(status_of(text, &q), 414);
    (void)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nX: %0*d", HTTP_MAX_HEAD, 0);
    assert_int_equal(status_of(text, &q), 431);
    text[HTTP_MAX_HEAD - 1] = '\0';
    assert_int_equal(status_of(text, &q), -1); /* more may come */
}

static void escapes_are_decoded_or_refused(void **state)
{
    char text[8];

    (void)state;
    assert_int_equal(http_decode("a%2Fb/c", '/', text, sizeof(text)), 5);
    assert_string_equal(text, "a/b");
    assert_int_equal(http_decode("1234567", '/', text, sizeof(text)), 7);
    assert_int_equal(http_decode("12345678", '/', text, sizeof(text)), -1);
    assert_int_equal(http_decode("%", '/', text, sizeof(text)), -1);
    assert_int_equal(http_decode("%4", '/', text, sizeof(text)), -1);
    assert_int_equal(http_decode("%zz", '/', text, sizeof(text)), -1);
    assert_int_equal(http_decode("%00", '/', text, sizeof(text)), -1);
    assert_int_equal(http_decode("%0a", '/', text, sizeof(text)), -1);
    assert_int_equal(http_decode("%C3%A9", '/', text, sizeof(text)), 6);
    assert_string_equal(text, "\xc3\xa9");
}

static void a_query_is_looked_up_by_name(void **state)
{
    char text[8];

    (void)state;
    assert_int_equal(http_query("a=1&bb=x%26y&c=", "bb", text, sizeof(text)), 0);
    assert_string_equal(text, "x&y");
    assert_int_equal(http_query("a=1&bb=2&c=", "c", text, sizeof(text)), 0);
    assert_string_equal(text, "");
}

static void a_value_that_is_not_there_is_told_from_one_that_is_not_valid(void **state)
{
    static const char *const without[] = {"", "a=1&bb=2", "ab=1", "b"};
    static const char *const invalid[] = {"b=%", "a=1&b=1%zz&c=2", "b=%0a",
                                          "b=12345678"};
    char text[8];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(without); i++) {
        assert_int_equal(http_query(without[i], "b", text, sizeof(text)), ERR_MISSING);
    }
    for (size_t i = 0; i < ARRAY_LEN(invalid); i++) {
        assert_int_equal(http_query(invalid[i], "b", text, sizeof(text)), ERR_INVALID);
    }
}

static void names_that_others_can_point_here_are_told_from_addresses(void **state)
{
    static const char *const fine[] = {"127.0.0.1", "10.1.2.3",  "::1",
                                       "fe80::1",   "localhost", "LocalHost"};
    static const char *const foreign[] = {
        "evil.example", "localhost.evil.example", "1.2.3", "1.2.3.4.5", "", "a"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
        assert_true(http_host_is_numeric(fine[i]));
    }
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++) {
        assert_false(http_host_is_numeric(foreign[i]));
    }
}

static void a_response_says_what_a_browser_may_do_with_it(void **state)
{
    struct buf out;
    struct http_response r = {
        .status = 200, .date = "now", .type = "text/plain", .size = 12};

    (void)state;
    buf_init(&out, 4096);
    assert_int_equal(http_put_head(&out, &r), 0);
    assert_int_equal(buf_append(&out, "", 1), 0);
    assert_string_equal((const char *)buf_bytes(&out),
                        "HTTP/1.1 200 OK\r\n"
                        "Date: now\r\n"
                        "Content-Type: text/plain\r\n"
                        "Content-Length: 12\r\n"
                        "Connection: close\r\n"
                        "Cache-Control: no-store\r\n"
                        "Content-Security-Policy: default-src 'none'; frame-ancestors "
                        "'none'\r\n"
                        "Cross-Origin-Resource-Policy: same-origin\r\n"
                        "Referrer-Policy: no-referrer\r\n"
                        "X-Content-Type-Options: nosniff\r\n"
                        "X-Frame-Options: DENY\r\n\r\n");
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_read),
        cmocka_unit_test(no_beginning_of_a_request_is_refused),
        cmocka_unit_test(what_could_be_read_in_two_ways_is_refused),
        cmocka_unit_test(a_host_has_a_port_or_nothing_behind_it),
        cmocka_unit_test(a_head_is_bounded_in_bytes_and_fields),
        cmocka_unit_test(escapes_are_decoded_or_refused),
        cmocka_unit_test(a_query_is_looked_up_by_name),
        cmocka_unit_test(a_value_that_is_not_there_is_told_from_one_that_is_not_valid),
        cmocka_unit_test(names_that_others_can_point_here_are_told_from_addresses),
        cmocka_unit_test(a_response_says_what_a_browser_may_do_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
