#include "rendezvous/kept_curve.h"

#include "rendezvous/record_fields.h"

#include "common/mem.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

enum { POINT_SIZE = 24 };

static int put_point(const struct loss_point *p, struct buf *out)
{
    uint64_t loss;
    int rv;

    memcpy(&loss, &p->loss, sizeof(loss));
    rv = wire_put_u64(out, p->step);
    rv = rv < 0 ? rv : wire_put_u64(out, p->wall_ms);
    return rv < 0 ? rv : wire_put_u64(out, loss);
}

static struct loss_point get_point(struct wire_reader *r)
{
    struct loss_point p = {.step = wire_get_u64(r), .wall_ms = wire_get_u64(r)};
    uint64_t loss = wire_get_u64(r);

    memcpy(&p.loss, &loss, sizeof(p.loss));
    return p;
}

void kept_curve_put(const struct kept_curve *c, kept_curve_save_fn *save, void *arg)
{
    struct record_curve fields = {.ended = c->ended,
                                  .began_ms = c->began_ms,
                                  .generation = c->curve.generation,
                                  .stride = c->curve.stride,
                                  .n_skipped = c->curve.n_skipped};
    struct record_key key = {.size = 0};
    struct buf points;
    struct buf value;
    int rv = 0;

    record_key_u64(&key, c->number);
    memcpy(fields.owner, c->owner, sizeof(fields.owner));
    buf_init(&points, (size_t)LOSS_CURVE_MAX * POINT_SIZE);
    buf_init(&value, RECORD_VALUE_MAX);
    for (size_t i = 0; i < c->curve.n && rv == 0; i++) {
        rv = put_point(&c->curve.point[i], &points);
    }
    fields.points = record_bytes(&points);
    rv = rv < 0 ? rv : record_put_curve(&fields, &value);
    ASSERT(rv == 0); /* there are no more points */
    save(arg, &(struct record){.act = RECORD_PUT,
                               .kind = RECORD_CURVE,
                               .job = c->job,
                               .key = record_key_bytes(&key),
                               .value = record_bytes(&value)});
    buf_release(&points);
    buf_release(&value);
}

void kept_curve_drop(const char *job, uint64_t number, kept_curve_save_fn *save,
                     void *arg)
{
    struct record_key key = {.size = 0};

    record_key_u64(&key, number);
    save(arg, &(struct record){.act = RECORD_DROP,
                               .kind = RECORD_CURVE,
                               .job = job,
                               .key = record_key_bytes(&key)});
}

static bool take_points(struct bytes bytes, struct loss_curve *ret)
{
    struct loss_point *points;
    struct wire_reader r;
    size_t n = bytes.size / POINT_SIZE;
    bool is_sane = bytes.size % POINT_SIZE == 0 && n > 0 && n <= LOSS_CURVE_MAX;

    if (!is_sane) {
        return false;
    }
    points = mem_array(n, sizeof(*points));
    wire_reader_init(&r, bytes.data, bytes.size);
    for (size_t i = 0; i < n; i++) {
        points[i] = get_point(&r);
        is_sane = is_sane && (i == 0 || points[i].step > points[i - 1].step);
    }
    if (is_sane) {
        loss_curve_restore(ret, points, n);
    }
    mem_free(points);
    return is_sane;
}

bool kept_curve_read(const struct record *r, struct kept_curve *ret)
{
    struct bytes key = r->key;
    struct record_curve f;

    *ret = (struct kept_curve){0};
    if (record_take_number(&key, sizeof(ret->number), &ret->number) < 0 ||
        key.size > 0 || strlen(r->job) >= sizeof(ret->job) ||
        record_get_curve(r->value, &f) < 0 || f.stride == 0 ||
        f.stride > UINT64_MAX / 4 || f.n_skipped > f.stride ||
        !take_points(f.points, &ret->curve)) {
        return false;
    }
    (void)snprintf(ret->job, sizeof(ret->job), "%s", r->job);
    memcpy(ret->owner, f.owner, sizeof(ret->owner));
    ret->ended = f.ended;
    ret->began_ms = f.began_ms;
    ret->curve.generation = f.generation;
    ret->curve.stride = f.stride;
    ret->curve.n_skipped = f.n_skipped;
    return true;
}
