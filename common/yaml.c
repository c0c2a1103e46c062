#include "common/yaml.h"

#include "common/mem.h"
#include "common/yaml_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

/* The happy path: the file is read whole (at most YAML_MAX_BYTES), libyaml turns it
 * into events, and each event becomes a node that is appended to the innermost open map
 * or list. What goes wrong is said with the place at which libyaml stood. */

struct builder {
    struct yaml_tree *tree;
    const char *file; /* kept by the tree */
    const char *text; /* the whole of it, and its bytes */
    size_t size;
    struct yaml_node *open[YAML_MAX_DEPTH]; /* maps and lists not yet ended */
    size_t n_open;
    struct yaml_node *root;
    char *key; /* owned; a map's key that waits for its value */
    yaml_mark_t key_mark;
    int n_documents;
    struct errmsg *msg;
};

static int line_of(yaml_mark_t mark)
{
    return (int)mark.line + 1; /* files have at most YAML_MAX_BYTES lines */
}

static int column_of(yaml_mark_t mark)
{
    return (int)mark.column + 1;
}

static int fail(const struct builder *b, yaml_mark_t mark, int err, const char *text)
{
    return errmsg_set(b->msg, err, "%s:%d:%d: %s", b->file, line_of(mark),
                      column_of(mark), text);
}

/* True at a tab with nothing but blanks before it: it indents the line. */
static bool is_indenting_tab(const struct builder *b, yaml_mark_t mark)
{
    const char *line = b->text;
    const char *end = b->text + b->size;

    for (size_t n = 0; n < mark.line && line; n++) {
        line = memchr(line, '\n', (size_t)(end - line));
        line = line ? line + 1 : NULL;
    }
    for (size_t i = 0; line && i < mark.column && line + i < end; i++) {
        if (line[i] != ' ' && line[i] != '\t') {
            return false;
        }
    }
    return line && line + mark.column < end && line[mark.column] == '\t';
}

static int fail_of_parser(const struct builder *b, const yaml_parser_t *parser)
{
    const char *problem = parser->problem ? parser->problem : "not readable as YAML";

    if (parser->error == YAML_READER_ERROR) {
        return errmsg_set(b->msg, ERR_INVALID, "%s: %s at byte %zu", b->file, problem,
                          parser->problem_offset);
    }
    if (is_indenting_tab(b, parser->problem_mark)) {
        return fail(b, parser->problem_mark, ERR_INVALID,
                    "a tab: YAML is indented with spaces, not with tabs");
    }
    if (!parser->context) {
        return fail(b, parser->problem_mark, ERR_INVALID, problem);
    }
    return errmsg_set(b->msg, ERR_INVALID, "%s:%d:%d: %s %s", b->file,
                      line_of(parser->problem_mark), column_of(parser->problem_mark),
                      problem, parser->context);
}

/* Puts a new node where it belongs: the root, or into the innermost open node. */
static void add_node(struct builder *b, struct yaml_node *n, yaml_mark_t mark)
{
    struct yaml_node *parent = b->n_open > 0 ? b->open[b->n_open - 1] : NULL;

    n->line = line_of(mark);
    n->column = column_of(mark);
    if (!parent) {
        b->root = n;
        return;
    }
    if (parent->kind == YAML_MAP) {
        n->key_line = line_of(b->key_mark);
        n->key_column = column_of(b->key_mark);
    }
    yaml_node_append(parent, n, b->key);
    mem_free(b->key);
    b->key = NULL;
}

static bool expects_key(const struct builder *b)
{
    return b->n_open > 0 && b->open[b->n_open - 1]->kind == YAML_MAP && !b->key;
}

static int add_key(struct builder *b, const char *text, yaml_mark_t mark)
{
    const struct yaml_node *twin = yaml_node_find(b->open[b->n_open - 1], text);

    if (twin) {
        return errmsg_set(b->msg, ERR_INVALID,
                          "%s:%d:%d: \"%s\" is given twice; first in line %d", b->file,
                          line_of(mark), column_of(mark), text, twin->key_line);
    }
    b->key = mem_strdup(text);
    b->key_mark = mark;
    return 0;
}

static int on_scalar(struct builder *b, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    struct yaml_node *n;

    if (memchr(text, '\0', event->data.scalar.length)) {
        return fail(b, event->start_mark, ERR_INVALID, "a zero byte in a text");
    }
    if (event->data.scalar.tag) {
        return fail(b, event->start_mark, ERR_INVALID,
                    "tags (!…) are not known here; leave it out");
    }
    if (expects_key(b)) {
        return add_key(b, text, event->start_mark);
    }
    n = yaml_node_new_in(b->tree, YAML_SCALAR, b->file, text);
    n->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    add_node(b, n, event->start_mark);
    return 0;
}

static int on_start(struct builder *b, enum yaml_kind kind, const yaml_char_t *tag,
                    yaml_mark_t mark)
{
    struct yaml_node *n;

    if (expects_key(b)) {
        return fail(b, mark, ERR_INVALID, "a key must be text");
    }
    if (tag) {
        return fail(b, mark, ERR_INVALID, "tags (!…) are not known here; leave it out");
    }
    if (b->n_open == YAML_MAX_DEPTH) {
        return fail(b, mark, ERR_TOO_LARGE, "more than 32 levels of nesting");
    }
    n = yaml_node_new_in(b->tree, kind, b->file, NULL);
    add_node(b, n, mark);
    b->open[b->n_open++] = n;
    return 0;
}

static int on_event(struct builder *b, const yaml_event_t *event)
{
    if (yaml_tree_size(b->tree) >= YAML_MAX_NODES) {
        return fail(b, event->start_mark, ERR_TOO_LARGE, "more than 10000 values");
    }
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return on_scalar(b, event);
    case YAML_SEQUENCE_START_EVENT:
        return on_start(b, YAML_SEQ, event->data.sequence_start.tag, event->start_mark);
    case YAML_MAPPING_START_EVENT:
        return on_start(b, YAML_MAP, event->data.mapping_start.tag, event->start_mark);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        b->n_open--;
        return 0;
    case YAML_ALIAS_EVENT:
        return fail(b, event->start_mark, ERR_INVALID,
                    "aliases (*name) are not known here; use ${a.b}");
    case YAML_DOCUMENT_START_EVENT:
        b->n_documents++;
        return b->n_documents == 1 ? 0
                                   : fail(b, event->start_mark, ERR_INVALID,
                                          "a second document (---) in one file");
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
    default:
        return 0;
    }
}

static int build(struct builder *b, yaml_parser_t *parser)
{
    yaml_event_t event;
    bool at_end = false;
    int rv = 0;

    while (rv == 0 && !at_end) {
        if (!yaml_parser_parse(parser, &event)) {
            return fail_of_parser(b, parser);
        }
        rv = on_event(b, &event);
        at_end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    return rv;
}

int yaml_read_text(struct yaml_tree *t, const char *name, const char *text, size_t size,
                   struct yaml_node **ret, struct errmsg *msg)
{
    struct builder b = {.tree = t,
                        .file = yaml_tree_keep_name(t, name),
                        .text = text,
                        .size = size,
                        .msg = msg};
    yaml_parser_t parser;
    int rv;

    if (size > YAML_MAX_BYTES) {
        return errmsg_set(msg, ERR_TOO_LARGE, "%s: larger than 1 MiB", name);
    }
    if (!yaml_parser_initialize(&parser)) {
        return errmsg_set(msg, -ENOMEM, "%s: %s", name, err_text(-ENOMEM));
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    rv = build(&b, &parser);
    yaml_parser_delete(&parser);
    mem_free(b.key);
    if (rv < 0) {
        return rv;
    }
    *ret = b.root ? b.root : yaml_node_new(t, YAML_MAP, name, NULL);
    return 0;
}

/* Reads up to `size` bytes; a short count is the end of the file. */
static ssize_t read_whole(int fd, char *data, size_t size)
{
    size_t used = 0;

    while (used < size) {
        ssize_t n = read(fd, data + used, size - used);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        if (n == 0) {
            break;
        }
        used += (size_t)n;
    }
    return (ssize_t)used;
}

int yaml_read_file(struct yaml_tree *t, const char *path, struct yaml_node **ret,
                   struct errmsg *msg)
{
    struct yaml_node *root = NULL;
    struct stat st;
    char *data;
    ssize_t n;
    int fd;
    int rv;

    fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO must not hold us */
    if (fd < 0) {
        return errmsg_set(msg, -errno, "%s: %s", path, err_text(-errno));
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd);
        return errmsg_set(msg, ERR_INVALID, "%s: not a file", path);
    }
    data = mem_alloc(YAML_MAX_BYTES + 1);
    n = read_whole(fd, data, YAML_MAX_BYTES + 1);
    (void)close(fd); /* only read from */
    if (n < 0) {
        rv = errmsg_set(msg, (int)n, "%s: %s", path, err_text((int)n));
    } else {
        rv = yaml_read_text(t, path, data, (size_t)n, &root, msg);
    }
    mem_free(data);
    if (rv < 0) {
        return rv;
    }
    ASSERT(root);
    if (yaml_node_is_null(root)) {
        root = yaml_node_new(t, YAML_MAP, path, NULL);
    }
    if (root->kind != YAML_MAP) {
        return yaml_blame(root, ERR_INVALID, msg, "expected \"key: value\" lines");
    }
    *ret = root;
    return 0;
}
