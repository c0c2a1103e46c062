#include "tests/lib/shelf.h"

#include "rendezvous/history.h"
#include "rendezvous/record_fields.h"

#include "common/mem.h"

#include <string.h>

struct shelf_record {
    struct record r;
    uint8_t bytes[]; /* job, key, value */
};

static struct shelf_record *copy(const struct record *r)
{
    size_t job_size = strlen(r->job) + 1;
    struct shelf_record *c =
        mem_alloc(sizeof(*c) + job_size + r->key.size + r->value.size);
    uint8_t *at = c->bytes;

    c->r = *r;
    memcpy(at, r->job, job_size);
    c->r.job = (const char *)at;
    at += job_size;
    c->r.key.data = at;
    if (r->key.size > 0) {
        memcpy(at, r->key.data, r->key.size);
    }
    at += r->key.size;
    c->r.value.data = at;
    if (r->value.size > 0) {
        memcpy(at, r->value.data, r->value.size);
    }
    return c;
}

void shelf_release(struct shelf *s)
{
    for (size_t i = 0; i < s->n; i++) {
        mem_free(s->record[i]);
    }
    shelf_lose(s);
    mem_free(s->record);
    mem_free(s->turn);
    *s = (struct shelf){0};
}

void shelf_save(void *arg, const struct record *r)
{
    struct shelf *s = arg;

    ASSERT((r->job[0] != '\0' || r->kind == RECORD_EVENT || r->kind == RECORD_START) &&
           r->key.size <= RECORD_KEY_MAX);
    if (s->n_turn == s->turn_capacity) {
        s->turn_capacity = MAX(2 * s->turn_capacity, 64);
        s->turn = mem_grow(s->turn, s->turn_capacity, sizeof(struct shelf_record *));
    }
    s->turn[s->n_turn++] = copy(r);
    s->n_saved++;
    s->bytes_saved += r->key.size + r->value.size;
}

void shelf_lose(struct shelf *s)
{
    while (s->n_turn > 0) {
        mem_free(s->turn[--s->n_turn]);
    }
}

void shelf_copy(struct shelf *to, const struct shelf *from)
{
    *to = (struct shelf){.record = mem_array(from->n, sizeof(struct shelf_record *)),
                         .n = from->n,
                         .capacity = from->n,
                         .n_commits = from->n_commits};
    for (size_t i = 0; i < from->n; i++) {
        to->record[i] = copy(&from->record[i]->r);
    }
}

/* Where it is, or would be. */
static size_t place_of(const struct shelf *s, const struct record *r,
                       bool *ret_is_there)
{
    size_t low = 0;
    size_t high = s->n;

    *ret_is_there = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = record_compare(&s->record[middle]->r, r);

        if (order == 0) {
            *ret_is_there = true;
            return middle;
        }
        *(order < 0 ? &low : &high) = order < 0 ? middle + 1 : middle;
    }
    return low;
}

static void put(struct shelf *s, struct shelf_record *c)
{
    bool is_there;
    size_t i = place_of(s, &c->r, &is_there);

    if (is_there) {
        mem_free(s->record[i]);
        s->record[i] = c;
        return;
    }
    if (s->n == s->capacity) {
        s->capacity = MAX(2 * s->capacity, 64);
        s->record = mem_grow(s->record, s->capacity, sizeof(struct shelf_record *));
    }
    memmove(&s->record[i + 1], &s->record[i],
            (s->n - i) * sizeof(struct shelf_record *));
    s->record[i] = c;
    s->n++;
}

static bool is_meant(const struct record *r, const struct record *drop)
{
    bool is_of_generation = r->kind == RECORD_END || r->kind == RECORD_KEY ||
                            r->kind == RECORD_QUEUE || r->kind == RECORD_CLIENT;
    bool stays = r->kind == RECORD_FINISHED || r->kind == RECORD_COMMIT ||
                 r->kind == RECORD_EVENT || r->kind == RECORD_CURVE;

    if (strcmp(r->job, drop->job) != 0) {
        return false;
    }
    if (drop->act == RECORD_DROP_JOB) {
        return !stays;
    }
    return is_of_generation && r->generation == drop->generation;
}

static void drop_one(struct shelf *s, const struct record *r)
{
    bool is_there;
    size_t i = place_of(s, r, &is_there);

    if (is_there) {
        mem_free(s->record[i]);
        s->n--;
        memmove(&s->record[i], &s->record[i + 1],
                (s->n - i) * sizeof(struct shelf_record *));
    }
}

static void drop_many(struct shelf *s, const struct record *r)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->n; i++) {
        if (is_meant(&s->record[i]->r, r)) {
            mem_free(s->record[i]);
        } else {
            s->record[kept++] = s->record[i];
        }
    }
    s->n = kept;
}

uint64_t shelf_kept(const struct shelf *s)
{
    return s->n_commits + (s->n_turn > 0);
}

static void begin(void *arg, const struct record *r)
{
    if (r->act == RECORD_PUT) {
        put(arg, copy(r));
    } else {
        drop_one(arg, r);
    }
}

void shelf_begin(struct shelf *s, const struct start *now)
{
    ASSERT(now->found == s->n_commits);
    s->n_commits++;
    starts_save(now, begin, s);
}

void shelf_commit(struct shelf *s)
{
    s->n_commits += s->n_turn > 0;
    for (size_t i = 0; i < s->n_turn; i++) {
        if (s->turn[i]->r.act == RECORD_PUT) {
            put(s, s->turn[i]);
            continue;
        }
        if (s->turn[i]->r.act == RECORD_DROP) {
            drop_one(s, &s->turn[i]->r);
        } else {
            drop_many(s, &s->turn[i]->r);
        }
        mem_free(s->turn[i]);
    }
    s->n_turn = 0;
}

int shelf_restore(const struct shelf *s, struct service *service,
                  struct history *history, uint64_t now_ms, struct errmsg *msg)
{
    int rv = 0;

    for (size_t i = 0; i < s->n && rv == 0; i++) {
        const struct record *r = &s->record[i]->r;

        if (history && (r->kind == RECORD_EVENT || r->kind == RECORD_CURVE)) {
            ASSERT(history_restore(history, r));
        } else {
            rv = service_restore(service, r, msg);
        }
    }
    if (history) {
        history_restored(history, now_ms);
    }
    return rv < 0 ? rv : service_restored(service, now_ms, msg);
}

const struct record *shelf_at(const struct shelf *s, size_t i)
{
    return i < s->n ? &s->record[i]->r : NULL;
}

size_t shelf_count(const struct shelf *s, enum record_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++) {
        n += s->record[i]->r.kind == kind;
    }
    return n;
}
