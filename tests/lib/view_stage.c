#include "tests/lib/view_stage.h"

#include "tests/lib/cmocka.h"

#include <stdlib.h>
#include <string.h>

const char view_two_nodes[] = "shape nodes=2:3 nproc=2 restarts=3\n"
                              "b enters\n"
                              "a enters role=x\n"
                              "wait 3000\n"
                              "> a,b ROUND g=1 a b failures=0 role=0/2\n";

struct view view_of(struct stage *st)
{
    return (struct view){stage_service(st), stage_history(st), stage_now(st), NULL};
}

void view_expect(json_t *json, const char *expected)
{
    char text[4096];
    json_t *want;
    char *is;
    char *should;

    assert_true(strlen(expected) < sizeof(text));
    for (size_t i = 0; i <= strlen(expected); i++) {
        text[i] = expected[i] == '\'' ? '"' : expected[i];
    }
    want = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(want);
    is = json_dumps(json, JSON_SORT_KEYS | JSON_INDENT(1) | JSON_ENCODE_ANY);
    should = json_dumps(want, JSON_SORT_KEYS | JSON_INDENT(1) | JSON_ENCODE_ANY);
    assert_string_equal(is, should);
    free(is);
    free(should);
    json_decref(json);
    json_decref(want);
}

json_t *view_member(json_t *json, const char *key)
{
    json_t *value = json_incref(json_object_get(json, key));

    json_decref(json);
    return value;
}
