#include "rendezvous/fence.h"

#include <stdio.h>
#include <string.h>

void fence_begin(struct fence *f)
{
    struct commit last = f->last;

    *f = (struct fence){.last = last};
}

const char *fence_resumed(struct fence *f, uint32_t run, uint64_t step)
{
    if (f->has_resumed && (f->resumed_run != run || f->resumed_step != step)) {
        return "this generation has resumed already";
    }
    f->has_resumed = true;
    f->resumed_run = run;
    f->resumed_step = step;
    return NULL;
}

static void set_commit(struct commit *c, uint32_t run, uint64_t step, const char *hash)
{
    c->run = run;
    c->step = step;
    (void)snprintf(c->hash, sizeof(c->hash), "%s", hash);
}

const char *fence_commit(struct fence *f, uint32_t run, uint64_t step, const char *hash)
{
    bool has_commit = f->own.hash[0] != '\0';
    uint64_t floor = has_commit ? f->own.step : f->resumed_step;

    if (hash[0] == '\0') {
        return "a commit without a hash";
    }
    if (step > INT64_MAX) {
        return "no run has so many steps"; /* nor has the database, or JSON, the number */
    }
    if (!f->has_resumed) {
        return "this generation has not said yet from which step it resumed";
    }
    if (run != f->resumed_run) {
        return "this generation has resumed in another run";
    }
    if (has_commit && f->own.step == step && strcmp(f->own.hash, hash) == 0) {
        return NULL;
    }
    if (step <= floor) {
        return "this step or a later one is committed already";
    }
    set_commit(&f->own, run, step, hash);
    f->last = f->own;
    return NULL;
}

void fence_learn(struct fence *f, uint32_t run, uint64_t step, const char *hash)
{
    bool is_newer = run > f->last.run || (run == f->last.run && step > f->last.step);

    if (hash[0] != '\0' && (f->last.hash[0] == '\0' || is_newer)) {
        set_commit(&f->last, run, step, hash);
    }
}
