/* See snapshot.h. A row belongs to the holder of its first element: so a box begins with
 * what is own, and only the end of its last row, the tail, may come from others. */

#include "worker/snapshot.h"

#include "worker/regroup.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    STATES = 3,
    PARTS = 2, /* of a box */
};

/* Where a box comes from. */
struct source {
    size_t state;
    size_t at;    /* elements, of the spans of that state (shares.h) */
    size_t own;   /* elements, of the own block: where its first rows are */
    size_t n_own; /* how many of the box are there */
    float *tail;  /* the others' place */
};

struct snapshot {
    struct snapshot_config config;
    struct share share;        /* this rank's boxes, as in the file: by name … */
    struct source *source;     /* owned: … and each one's origin */
    struct device_part *parts; /* owned: two a box, the own rows and a tail's room */
    struct regroup regroup;    /* from the own blocks to the spans */
    struct piece *send, *recv; /* owned: the tails of all states */
    float *memory; /* owned (device): the boxes, or the tails, back to back */
    size_t bytes;
    bool exchanges; /* tails */
};

/* --- sizes --- */

static size_t tails_bytes(const struct regroup *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n_recvs; i++) {
        n += r->recv[i].n;
    }
    return STATES * n * sizeof(float);
}

size_t snapshot_bytes(const struct layout *layout, const struct holder *holder,
                      bool in_place)
{
    struct shard_map spans;
    struct regroup regroup;
    size_t bytes;

    if (in_place) {
        regroup_init(&regroup, layout, holder);
        bytes = tails_bytes(&regroup);
        regroup_release(&regroup);
        return bytes;
    }
    share_spans(layout, holder, &spans);
    bytes = STATES * spans.size * sizeof(float);
    shard_map_release(&spans);
    return bytes;
}

/* --- laying out --- */

struct placed {
    struct box box;
    size_t flat;
    struct source source;
};

static int compare_placed(const void *a, const void *b)
{
    return strcmp(((const struct placed *)a)->box.name,
                  ((const struct placed *)b)->box.name);
}

/* Boxes come state by state for each run of rows. */
static void collect_placed(const struct snapshot *s, struct placed *ret)
{
    for (size_t i = 0; i < s->share.n_boxes; i++) {
        const struct shard_map *spans = &s->share.spans;
        const struct shard_range *r = spans->range;
        size_t flat = s->share.flat[i];

        while (flat < r->begin || flat >= r->end) {
            r++;
            ASSERT(r < spans->range + spans->n_ranges);
        }
        ret[i] = (struct placed){
            s->share.box[i],
            flat,
            {.state = i % STATES, .at = r->at + (flat - r->begin)},
        };
    }
}

/* Into the order of the file, so that it is written from a copy without another one. */
static void order_boxes(struct snapshot *s)
{
    size_t n = s->share.n_boxes;
    struct placed *placed = mem_array(n, sizeof(*placed));

    collect_placed(s, placed);
    qsort(placed, n, sizeof(*placed), compare_placed);
    s->source = mem_array(n, sizeof(*s->source));
    for (size_t i = 0; i < n; i++) {
        s->source[i] = placed[i].source;
        s->share.flat[i] = placed[i].flat;
        s->share.box[i] = placed[i].box;
    }
    mem_free(placed);
}

static size_t box_floats(const struct snapshot *s, size_t i)
{
    return checkpoint_box_bytes(&s->share.box[i]) / sizeof(float);
}

static void find_own(struct snapshot *s, size_t i)
{
    struct source *from = &s->source[i];
    const struct regroup_copy *c = s->regroup.copy;

    while (from->at < c->share || from->at - c->share >= c->n) {
        c++;
        ASSERT(c < s->regroup.copy + s->regroup.n_copies);
    }
    from->n_own = MIN(c->share + c->n - from->at, box_floats(s, i));
    from->own = c->own + (from->at - c->share);
}

/* In the box if that is a copy, else the tails are one behind the other. */
static void place_boxes(struct snapshot *s)
{
    float *to = s->memory;

    s->parts = mem_array(PARTS * s->share.n_boxes, sizeof(*s->parts));
    for (size_t i = 0; i < s->share.n_boxes; i++) {
        struct source *from = &s->source[i];
        struct box *box = &s->share.box[i];
        size_t n_tail;

        find_own(s, i);
        n_tail = box_floats(s, i) - from->n_own;
        s->parts[PARTS * i].bytes = from->n_own * sizeof(float);
        s->parts[PARTS * i + 1] = (struct device_part){NULL, n_tail * sizeof(float)};
        if (s->config.in_place) {
            from->tail = to;
            box->tail = to;
            box->n_tail = n_tail;
        } else {
            box->data = to;
            to += from->n_own;
            from->tail = to;
        }
        to += n_tail;
    }
    ASSERT((size_t)(to - s->memory) * sizeof(float) <= s->bytes);
}

/* Where element `at` of a state's spans is in the snapshot's memory, and the `bytes`
 * behind it: a tail is a piece of one row, so of one box. */
static float *place_of(const struct snapshot *s, size_t state, size_t at, size_t bytes)
{
    for (size_t i = 0; i < s->share.n_boxes; i++) {
        const struct source *from = &s->source[i];
        size_t n = box_floats(s, i);

        if (from->state == state && at >= from->at && at - from->at < n) {
            ASSERT(at - from->at >= from->n_own);
            ASSERT((at - from->at) + bytes / sizeof(float) <= n);
            return from->tail + (at - from->at - from->n_own);
        }
    }
    ASSERT(!"a tail belongs to a box");
    return NULL;
}

static void plan_recvs(struct snapshot *s)
{
    size_t n = s->regroup.n_recvs;

    for (size_t state = 0; state < STATES; state++) {
        struct piece *recv = s->recv + state * n;

        regroup_recvs(&s->regroup, s->memory, recv); /* as if the spans were there */
        for (size_t i = 0; i < n; i++) {
            recv[i].data = place_of(s, state, s->regroup.recv[i].at, recv[i].bytes);
        }
    }
}

/* --- life --- */

static int alloc_memory(struct snapshot *s, struct errmsg *msg)
{
    void *memory = NULL;
    int rv;

    s->bytes = snapshot_bytes(s->config.layout, &s->config.holder, s->config.in_place);
    rv = device_alloc(s->config.device, MAX(s->bytes, 1), &memory);
    s->memory = memory;
    return rv < 0 ? errmsg_set(msg, rv,
                               "no memory for the checkpoint's snapshot (%zu MiB): "
                               "checkpoint.snapshot=false does without",
                               s->bytes >> 20)
                  : 0;
}

int snapshot_new(const struct snapshot_config *config, struct snapshot **ret,
                 struct errmsg *msg)
{
    struct snapshot *s = mem_zalloc(sizeof(*s));
    int n_writers = holder_writers(&config->holder);
    int rv;

    s->config = *config;
    s->exchanges = holder_is_sharded(&config->holder) && n_writers > 1 &&
                   config->holder.rank < n_writers;
    ASSERT(!s->exchanges || config->comm);
    share_make(config->layout, &config->holder, &s->share);
    regroup_init(&s->regroup, config->layout, &config->holder);
    s->send = mem_array(STATES * s->regroup.n_sends, sizeof(*s->send));
    s->recv = mem_array(STATES * s->regroup.n_recvs, sizeof(*s->recv));
    rv = alloc_memory(s, msg);
    if (rv < 0) {
        snapshot_free(s);
        return rv;
    }
    order_boxes(s);
    place_boxes(s);
    plan_recvs(s);
    *ret = s;
    return 0;
}

void snapshot_free(struct snapshot *s)
{
    if (!s) {
        return;
    }
    if (s->memory) {
        device_free(s->config.device, s->memory, MAX(s->bytes, 1));
    }
    share_release(&s->share);
    regroup_release(&s->regroup);
    mem_free(s->send);
    mem_free(s->recv);
    mem_free(s->source);
    mem_free(s->parts);
    mem_free(s);
}

/* --- taking it --- */

/* What others write of the own blocks, and the other way round. */
static void exchange_tails(struct snapshot *s, const float *const state[3])
{
    const struct regroup *r = &s->regroup;
    struct device *d = s->config.device;
    enum queue q = s->config.comm_queue;

    for (size_t i = 0; i < STATES; i++) {
        regroup_sends(r, state[i], s->send + i * r->n_sends);
    }
    device_wait(d, q, device_mark(d, QUEUE_COMPUTE));
    comm_all_to_all(s->config.comm, q, s->send, STATES * r->n_sends, s->recv,
                    STATES * r->n_recvs);
    device_wait(d, QUEUE_COPY, device_mark(d, q));
}

static void take_own(struct snapshot *s, const float *const state[3])
{
    struct device *d = s->config.device;

    device_wait(d, QUEUE_COPY, device_mark(d, QUEUE_COMPUTE));
    for (size_t i = 0; i < s->share.n_boxes; i++) {
        const float *own = state[s->source[i].state] + s->source[i].own;

        s->parts[PARTS * i].src = own;
        if (s->config.in_place) {
            memcpy(&s->share.box[i].data, &own, sizeof(own)); /* it is only read */
        }
    }
    if (!s->config.in_place) {
        device_pack(d, QUEUE_COPY, s->memory, s->parts, PARTS * s->share.n_boxes);
    }
}

struct ticket snapshot_take(struct snapshot *s, const float *const state[3])
{
    take_own(s, state);
    if (s->exchanges) {
        exchange_tails(s, state);
    }
    return device_mark(s->config.device, QUEUE_COPY);
}

const struct box *snapshot_boxes(const struct snapshot *s, size_t *ret_n)
{
    *ret_n = s->share.n_boxes;
    return s->share.box;
}
