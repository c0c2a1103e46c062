#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct yaml_tree *tree;

static int on_setup(void **state)
{
    (void)state;
    tree = yaml_tree_new();
    return 0;
}

static int on_teardown(void **state)
{
    (void)state;
    yaml_tree_free(tree);
    return 0;
}

static struct yaml_node *must_read(const char *text)
{
    struct yaml_node *root = NULL;
    struct errmsg msg = {0};

    if (yaml_read_text(tree, "x.yaml", text, strlen(text), &root, &msg) != 0) {
        fail_msg("%s", msg.text);
    }
    return root;
}

static void assert_refused(const char *text, int err, const char *expected)
{
    struct yaml_node *root = NULL;
    struct errmsg msg = {0};

    assert_int_equal(yaml_read_text(tree, "x.yaml", text, strlen(text), &root, &msg),
                     err);
    assert_string_equal(msg.text, expected);
    assert_null(root);
}

static void nodes_know_their_places(void **state)
{
    (void)state;
    struct yaml_node *root = must_read("a: 1\nb:\n  c: [x, 'y z']\n  d: {e: \"\"}\n");
    struct yaml_node *n = yaml_node_at(root, "b.c");

    assert_int_equal(n->kind, YAML_SEQ);
    assert_int_equal(n->key_line, 3);
    assert_int_equal(n->key_column, 3);
    assert_int_equal(n->line, 3);
    assert_int_equal(n->column, 6);
    assert_string_equal(n->first->text, "x");
    assert_true(n->first->plain);
    assert_string_equal(n->last->text, "y z");
    assert_false(n->last->plain);
    assert_int_equal(n->last->column, 10);
    assert_string_equal(yaml_node_at(root, "b.d.e")->text, "");
    assert_null(yaml_node_at(root, "a.b"));
    assert_null(yaml_node_at(root, "b.x"));
    assert_ptr_equal(yaml_node_at(root, "a")->parent, root);
}

static void paths_name_keys_and_items(void **state)
{
    (void)state;
    struct yaml_node *root = must_read("a: {b: [x, {c: 1}]}");
    char path[64];

    yaml_node_path(yaml_node_at(root, "a.b")->last->first, path, sizeof(path));
    assert_string_equal(path, "a.b[1].c");
    yaml_node_path(root, path, sizeof(path));
    assert_string_equal(path, "");
}

static void a_walk_meets_every_node_once_in_order(void **state)
{
    (void)state;
    struct yaml_node *root = must_read("a: 1\nb: {c: 2, d: [3, 4]}\ne: 5\n");
    char seen[64] = "";

    for (struct yaml_node *n = root; n; n = yaml_node_next(root, n)) {
        size_t used = strlen(seen);

        (void)snprintf(seen + used, sizeof(seen) - used, "%s", n->text ? n->text : "(");
    }
    assert_string_equal(seen, "(1(2(345");
}

static void null_is_plain_only(void **state)
{
    (void)state;
    struct yaml_node *root = must_read("[null, ~, '', \"null\", nil, Null]");
    const bool expected[] = {true, true, false, false, false, true};
    struct yaml_node *n = root->first;

    for (size_t i = 0; i < ARRAY_LEN(expected); i++, n = n->next) {
        assert_int_equal(yaml_node_is_null(n), expected[i]);
    }
    assert_true(yaml_node_is_null(yaml_node_find(must_read("a:"), "a")));
}

static void maps_merge_and_everything_else_replaces(void **state)
{
    (void)state;
    struct yaml_node *into = must_read("a: {x: 1, y: {z: 2}, l: [1, 2]}\nb: 3\n");
    struct yaml_node *from = must_read("a: {y: {w: 4}, l: [5], x: {deep: 6}}\nc: 7\n");

    yaml_merge(into, from);
    assert_string_equal(yaml_node_at(into, "a.y.z")->text, "2");
    assert_string_equal(yaml_node_at(into, "a.y.w")->text, "4");
    assert_string_equal(yaml_node_at(into, "a.l")->first->text, "5");
    assert_null(yaml_node_at(into, "a.l")->first->next);
    assert_string_equal(yaml_node_at(into, "a.x.deep")->text, "6");
    assert_string_equal(yaml_node_at(into, "b")->text, "3");
    assert_string_equal(yaml_node_at(into, "c")->text, "7");
    assert_null(from->first);
}

static void mistakes_are_said_with_their_place(void **state)
{
    (void)state;
    assert_refused("a: 1\nb: 2\na: 3\n", ERR_INVALID,
                   "x.yaml:3:1: \"a\" is given twice; first in line 1");
    assert_refused("a: {b: 1, c: 2, b: 3}", ERR_INVALID,
                   "x.yaml:1:17: \"b\" is given twice; first in line 1");
    assert_refused("a: &x 1\nb: *x\n", ERR_INVALID,
                   "x.yaml:2:4: aliases (*name) are not known here; use ${a.b}");
    assert_refused("a: !!python/object:os.system ls\n", ERR_INVALID,
                   "x.yaml:1:4: tags (!…) are not known here; leave it out");
    assert_refused("? [a, b]\n: 1\n", ERR_INVALID, "x.yaml:1:3: a key must be text");
    assert_refused("a: \"\\0\"\n", ERR_INVALID, "x.yaml:1:4: a zero byte in a text");
    assert_refused("a: 1\n---\nb: 2\n", ERR_INVALID,
                   "x.yaml:2:1: a second document (---) in one file");
    assert_refused("a: [1, 2\nb: 3\n", ERR_INVALID,
                   "x.yaml:2:2: did not find expected ',' or ']' while parsing a flow "
                   "sequence");
    assert_refused("a: \xff\n", ERR_INVALID,
                   "x.yaml: invalid leading UTF-8 octet at byte 3");
}

static void a_tab_that_indents_is_named(void **state)
{
    static const char what[] = "a tab: YAML is indented with spaces, not with tabs";
    char expected[128];

    (void)state;
    (void)snprintf(expected, sizeof(expected), "x.yaml:2:1: %s", what);
    assert_refused("model:\n\tdim: 32\n", ERR_INVALID, expected);
    (void)snprintf(expected, sizeof(expected), "x.yaml:3:1: %s", what);
    assert_refused("model:\n  dim:\t32\n\tlayers: 2", ERR_INVALID, expected);
    (void)snprintf(expected, sizeof(expected), "x.yaml:1:1: %s", what);
    assert_refused("\t", ERR_INVALID, expected);
    assert_refused("a: \t@b\n", ERR_INVALID,
                   "x.yaml:1:5: found character that cannot start any token while "
                   "scanning for the next token");
    assert_string_equal(yaml_node_at(must_read("a:\tb\tc\n"), "a")->text, "b\tc");
}

static void an_alias_bomb_is_refused_at_its_first_alias(void **state)
{
    (void)state;
    assert_refused("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n", ERR_INVALID,
                   "x.yaml:2:8: aliases (*name) are not known here; use ${a.b}");
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    static char text[200000];
    struct yaml_node *root = NULL;
    struct errmsg msg = {0};

    memset(text, '[', 32);
    memset(text + 32, ']', 32);
    assert_int_equal(must_read(text)->kind, YAML_SEQ);
    memset(text, '[', sizeof(text));
    assert_int_equal(yaml_read_text(tree, "x.yaml", text, sizeof(text), &root, &msg),
                     ERR_TOO_LARGE);
    assert_string_equal(msg.text, "x.yaml:1:33: more than 32 levels of nesting");
}

static void nodes_are_bounded(void **state)
{
    (void)state;
    enum { N = 2 * YAML_MAX_NODES };
    char *text = calloc(N + 1, 2);
    struct yaml_node *root = NULL;
    struct errmsg msg = {0};

    assert_non_null(text);
    text[0] = '[';
    for (size_t i = 0; i < N; i++) {
        text[1 + 2 * i] = '1';
        text[2 + 2 * i] = ',';
    }
    assert_int_equal(yaml_read_text(tree, "x.yaml", text, strlen(text), &root, &msg),
                     ERR_TOO_LARGE);
    assert_non_null(strstr(msg.text, "more than 10000 values"));
    free(text);
}

static void bytes_are_bounded(void **state)
{
    (void)state;
    char *text = calloc(YAML_MAX_BYTES + 2, 1);
    struct yaml_node *root = NULL;
    struct errmsg msg = {0};
    struct scratch s;

    assert_non_null(text);
    scratch_open(&s);
    memset(text, '#', YAML_MAX_BYTES);
    assert_int_equal(
        yaml_read_file(tree, scratch_text(&s, "x.yaml", text), &root, &msg), 0);
    text[YAML_MAX_BYTES] = '#';
    assert_int_equal(
        yaml_read_file(tree, scratch_text(&s, "x.yaml", text), &root, &msg),
        ERR_TOO_LARGE);
    assert_non_null(strstr(msg.text, "x.yaml: larger than 1 MiB"));
    scratch_close(&s);
    free(text);
}

static void files_hold_a_map_or_nothing(void **state)
{
    (void)state;
    struct yaml_node *root = NULL;
    struct errmsg msg = {0};
    struct scratch s;

    scratch_open(&s);
    assert_int_equal(
        yaml_read_file(tree, scratch_text(&s, "a", "# only a comment\n"), &root, &msg),
        0);
    assert_int_equal(root->kind, YAML_MAP);
    assert_null(root->first);
    assert_int_equal(yaml_read_file(tree, scratch_text(&s, "b", "---\n"), &root, &msg),
                     0);
    assert_int_equal(root->kind, YAML_MAP);
    assert_int_equal(yaml_read_file(tree, scratch_text(&s, "c", "- 1\n"), &root, &msg),
                     ERR_INVALID);
    assert_non_null(strstr(msg.text, "c:1:1: expected \"key: value\" lines"));
    assert_int_equal(yaml_read_file(tree, scratch_path(&s, "none"), &root, &msg),
                     -ENOENT);
    assert_non_null(strstr(msg.text, "none: No such file or directory"));
    assert_int_equal(yaml_read_file(tree, s.dir, &root, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, ": not a file"));
    scratch_close(&s);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, on_setup, on_teardown)
    const struct CMUnitTest tests[] = {
        CASE(nodes_know_their_places),
        CASE(paths_name_keys_and_items),
        CASE(a_walk_meets_every_node_once_in_order),
        CASE(null_is_plain_only),
        CASE(maps_merge_and_everything_else_replaces),
        CASE(mistakes_are_said_with_their_place),
        CASE(a_tab_that_indents_is_named),
        CASE(an_alias_bomb_is_refused_at_its_first_alias),
        CASE(nesting_is_bounded),
        CASE(nodes_are_bounded),
        CASE(bytes_are_bounded),
        CASE(files_hold_a_map_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
