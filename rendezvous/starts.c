#include "rendezvous/starts.h"

#include "rendezvous/record_fields.h"

#include "common/mem.h"

#include <string.h>

void starts_init(struct starts *s, const struct start *now)
{
    *s = (struct starts){.now = *now};
}

void starts_release(struct starts *s)
{
    mem_free(s->past);
    *s = (struct starts){0};
}

static const struct start *at(const struct starts *s, size_t i)
{
    return i < s->n ? &s->past[i] : &s->now;
}

/* Numbers of starts and transactions rise; the one at hand is not saved yet. */
static bool may_follow(const struct starts *s, const struct start *next)
{
    const struct start *last = s->n > 0 ? &s->past[s->n - 1] : NULL;

    return next->id != 0 && next->boot < s->now.boot && next->found <= s->now.found &&
           (!last || (last->boot < next->boot && last->found < next->found));
}

int starts_restore(struct starts *s, const struct record *r)
{
    struct record_start value;
    struct bytes key = r->key;
    struct start next = {0};
    int rv = record_get_start(r->value, &value);

    rv = rv == 0 ? record_take_number(&key, sizeof(next.boot), &next.boot) : rv;
    next.id = value.id;
    next.found = value.found;
    if (rv < 0 || key.size > 0 || r->generation != 0 || r->job[0] != '\0' ||
        !may_follow(s, &next)) {
        return rv < 0 ? rv : ERR_CORRUPT;
    }
    if (s->n == s->capacity) {
        s->capacity = MAX(2 * s->capacity, 16);
        s->past = mem_grow(s->past, s->capacity, sizeof(*s->past));
    }
    s->past[s->n++] = next;
    return 0;
}

bool starts_have(const struct starts *s, uint64_t boot, uint64_t id, uint64_t kept,
                 uint64_t *ret)
{
    *ret = at(s, 0)->found;
    if (boot < at(s, 0)->boot) {
        return true; /* by its number alone */
    }
    for (size_t i = 0; i <= s->n; i++) {
        if (at(s, i)->boot == boot && at(s, i)->id == id) {
            *ret = i < s->n ? at(s, i + 1)->found : kept;
            return true;
        }
    }
    return false;
}

static struct record name_of(enum record_act act, struct record_key *key, uint64_t boot)
{
    *key = (struct record_key){.size = 0};
    record_key_u64(key, boot);
    return (struct record){
        .act = act, .kind = RECORD_START, .job = "", .key = record_key_bytes(key)};
}

void starts_save(const struct start *now,
                 void (*save)(void *arg, const struct record *r), void *arg)
{
    const struct record_start value = {now->id, now->found};
    struct record_key key;
    struct record r = name_of(RECORD_PUT, &key, now->boot);
    struct buf bytes;
    int rv;

    buf_init(&bytes, RECORD_VALUE_MAX);
    rv = record_put_start(&value, &bytes);
    ASSERT(rv == 0);
    r.value = record_bytes(&bytes);
    save(arg, &r);
    buf_release(&bytes);
    if (now->boot > STARTS_MAX) {
        r = name_of(RECORD_DROP, &key, now->boot - STARTS_MAX);
        save(arg, &r);
    }
}
