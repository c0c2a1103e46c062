#include "tests/lib/linear.h"

#include "common/check.h"
#include "common/mem.h"

/* Which operations are done, and what the key is then. */
struct place {
    uint64_t done, state;
};

struct search {
    const struct linear_op *op;
    size_t n;
    struct place *been; /* owned; a power of two of places, most of them free: done 0 */
    size_t n_been, capacity;
};

uint64_t linear_hash(uint64_t before, const uint8_t *more, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        before = (before ^ more[i]) * 1099511628211U; /* FNV-1a */
    }
    return before;
}

/* False: that is not what it returned. */
static bool apply(const struct linear_op *op, uint64_t *state)
{
    bool has_result = op->returned != LINEAR_NEVER;

    switch (op->kind) {
    case LINEAR_SET:
        *state = op->value;
        return true;
    case LINEAR_APPEND:
        *state = linear_hash(*state, op->more, sizeof(op->more));
        return true;
    case LINEAR_CAS:
        *state = *state == op->expected ? op->value : *state;
        break;
    case LINEAR_GET:
        break;
    case LINEAR_ADD:
        *state += op->value;
        break;
    }
    return !has_result || op->result == *state;
}

static struct place *find(struct search *s, const struct place *p)
{
    size_t i = (p->done * 0x9E3779B97F4A7C15U ^ p->state) & (s->capacity - 1);

    while (s->been[i].done != 0 &&
           (s->been[i].done != p->done || s->been[i].state != p->state)) {
        i = (i + 1) & (s->capacity - 1);
    }
    return &s->been[i];
}

static void grow(struct search *s)
{
    struct place *old = s->been;
    size_t n = s->capacity;

    s->capacity *= 2;
    s->been = mem_array(s->capacity, sizeof(*s->been));
    for (size_t i = 0; i < n; i++) {
        if (old[i].done != 0) {
            *find(s, &old[i]) = old[i];
        }
    }
    mem_free(old);
}

/* True the first time. */
static bool enter(struct search *s, const struct place *p)
{
    struct place *at = find(s, p);

    if (at->done != 0) {
        return false;
    }
    *at = *p;
    if (++s->n_been * 2 > s->capacity) {
        grow(s);
    }
    return true;
}

/* The next one is called before any that is not done has returned. */
static uint64_t first_return(const struct search *s, uint64_t done)
{
    uint64_t first = LINEAR_NEVER;

    for (size_t i = 0; i < s->n; i++) {
        if (!(done >> i & 1) && s->op[i].returned < first) {
            first = s->op[i].returned;
        }
    }
    return first;
}

/* NOLINTNEXTLINE(misc-no-recursion): at most LINEAR_MAX deep */
static bool go_on(struct search *s, struct place at)
{
    uint64_t first = first_return(s, at.done);

    if (first == LINEAR_NEVER) {
        return true; /* what is left may never have been */
    }
    for (size_t i = 0; i < s->n; i++) {
        struct place next = {at.done | UINT64_C(1) << i, at.state};

        if (next.done != at.done && s->op[i].called < first &&
            apply(&s->op[i], &next.state) && enter(s, &next) && go_on(s, next)) {
            return true;
        }
    }
    return false;
}

bool linear_check(const struct linear_op *op, size_t n, uint64_t first)
{
    struct search s = {.op = op, .n = n, .capacity = 256};
    bool is_linear;

    ASSERT(n <= LINEAR_MAX);
    s.been = mem_array(s.capacity, sizeof(*s.been));
    is_linear = go_on(&s, (struct place){0, first});
    mem_free(s.been);
    return is_linear;
}
