/* Jobs that have ended: how many are remembered, and whose is forgotten first. */

#include "rendezvous/finished.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { NOW_MS = 1000, SHELF_MAX = 2 * FINISHED_MAX };

/* A state that keeps them, as a database would. */
struct shelf {
    struct {
        char id[MSG_ID_MAX];
        uint8_t *value; /* owned; NULL: none */
        size_t size;
    } kept[SHELF_MAX];
    size_t n; /* with those that were dropped */
};

static void on_save(void *arg, const struct record *r)
{
    struct shelf *shelf = arg;
    size_t i = 0;

    assert_int_equal(r->kind, RECORD_FINISHED);
    while (i < shelf->n && strcmp(shelf->kept[i].id, r->job) != 0) {
        i++;
    }
    if (r->act == RECORD_DROP) {
        assert_true(i < shelf->n && shelf->kept[i].value);
        mem_free(shelf->kept[i].value);
        shelf->kept[i].value = NULL;
        return;
    }
    assert_true(i < SHELF_MAX);
    shelf->n = MAX(shelf->n, i + 1);
    (void)snprintf(shelf->kept[i].id, sizeof(shelf->kept[i].id), "%s", r->job);
    shelf->kept[i].value = mem_dup(r->value.data, r->value.size);
    shelf->kept[i].size = r->value.size;
}

static size_t count_kept(const struct shelf *shelf)
{
    size_t n = 0;

    for (size_t i = 0; i < shelf->n; i++) {
        n += shelf->kept[i].value != NULL;
    }
    return n;
}

static struct shelf *new_shelf(struct finished *f)
{
    struct shelf *shelf = mem_zalloc(sizeof(*shelf));

    *f = (struct finished){.save = on_save, .save_arg = shelf};
    return shelf;
}

static void release(struct finished *f, struct shelf *shelf)
{
    finished_release(f);
    for (size_t i = 0; i < shelf->n; i++) {
        mem_free(shelf->kept[i].value);
    }
    mem_free(shelf);
}

/* The service is started again, with what is kept. */
static void restart(struct finished *f, const struct shelf *shelf)
{
    finished_release(f);
    for (size_t i = 0; i < shelf->n; i++) {
        struct record r = {.act = RECORD_PUT,
                           .kind = RECORD_FINISHED,
                           .job = shelf->kept[i].id,
                           .value = {shelf->kept[i].value, shelf->kept[i].size}};

        if (r.value.data) {
            assert_int_equal(finished_restore(f, &r), 0);
        }
    }
}

static const char *name_of(const char *owner, size_t i)
{
    static char name[64];

    (void)snprintf(name, sizeof(name), "%s-%03zu", owner, i);
    return name;
}

/* Jobs OWNER-<first> and so on end, one each millisecond. */
static void end_jobs(struct finished *f, const char *owner, size_t first, size_t n)
{
    struct job *job = mem_zalloc(sizeof(*job));

    (void)snprintf(job->owner, sizeof(job->owner), "secret %s", owner);
    job->generation = 1;
    for (size_t i = first; i < first + n; i++) {
        (void)snprintf(job->id, sizeof(job->id), "%s", name_of(owner, i));
        finished_note(f, job, NOW_MS + i);
    }
    mem_free(job);
}

static bool is_known(struct finished *f, const char *owner, size_t i)
{
    return finished_find(f, name_of(owner, i), NOW_MS + SHELF_MAX) != NULL;
}

static void who_ends_many_jobs_has_no_other_owners_forgotten(void **state)
{
    struct finished f;
    struct shelf *shelf = new_shelf(&f);

    (void)state;
    end_jobs(&f, "bob", 0, 1);
    end_jobs(&f, "alice", 1, FINISHED_MAX + 2);
    assert_true(is_known(&f, "bob", 0));
    assert_false(is_known(&f, "alice", 3)); /* her oldest go */
    assert_true(is_known(&f, "alice", 4));
    assert_true(is_known(&f, "alice", FINISHED_MAX + 2));
    assert_int_equal(f.n, FINISHED_MAX);
    assert_int_equal(count_kept(shelf), FINISHED_MAX);
    release(&f, shelf);
}

static void who_has_most_is_the_same_after_a_restart(void **state)
{
    struct finished f;
    struct shelf *shelf = new_shelf(&f);

    (void)state;
    end_jobs(&f, "bob", 0, 2);
    end_jobs(&f, "alice", 2, FINISHED_MAX - 2);
    restart(&f, shelf);
    assert_int_equal(f.n, FINISHED_MAX);
    end_jobs(&f, "carol", FINISHED_MAX, 1);
    assert_true(is_known(&f, "bob", 0) && is_known(&f, "bob", 1));
    assert_false(is_known(&f, "alice", 2));
    assert_true(is_known(&f, "alice", 3));
    assert_int_equal(count_kept(shelf), FINISHED_MAX);
    restart(&f, shelf);
    assert_true(is_known(&f, "bob", 0) && is_known(&f, "carol", FINISHED_MAX));
    assert_false(is_known(&f, "alice", 2));
    release(&f, shelf);
}

static void of_two_who_have_as_many_the_one_with_another_makes_room(void **state)
{
    struct finished f;
    struct shelf *shelf = new_shelf(&f);

    (void)state;
    end_jobs(&f, "alice", 0, FINISHED_MAX / 2);
    end_jobs(&f, "bob", FINISHED_MAX / 2, FINISHED_MAX / 2 + 1);
    assert_true(is_known(&f, "alice", 0));
    assert_false(is_known(&f, "bob", FINISHED_MAX / 2));
    end_jobs(&f, "carol", FINISHED_MAX + 1, 1); /* both have more: the oldest goes */
    assert_false(is_known(&f, "alice", 0));
    assert_true(is_known(&f, "bob", FINISHED_MAX / 2 + 1));
    assert_true(is_known(&f, "carol", FINISHED_MAX + 1));
    release(&f, shelf);
}

static void where_each_has_one_the_oldest_goes(void **state)
{
    struct finished f;
    struct shelf *shelf = new_shelf(&f);
    char owner[16];

    (void)state;
    for (size_t i = 0; i <= FINISHED_MAX; i++) {
        (void)snprintf(owner, sizeof(owner), "o%zu", i);
        end_jobs(&f, owner, i, 1);
    }
    assert_false(is_known(&f, "o0", 0));
    assert_true(is_known(&f, "o1", 1));
    assert_true(is_known(&f, "o256", 256));
    release(&f, shelf);
}

/* Nobody has asked since: they are there still, and of no owner's part. */
static void those_that_are_too_old_make_room_first(void **state)
{
    struct finished f;
    struct shelf *shelf = new_shelf(&f);

    (void)state;
    end_jobs(&f, "alice", 0, 10);
    end_jobs(&f, "bob", FINISHED_KEPT_MS, FINISHED_MAX - 10);
    end_jobs(&f, "carol", FINISHED_KEPT_MS + 9, 1);
    assert_int_equal(f.n, FINISHED_MAX - 9);
    assert_int_equal(count_kept(shelf), FINISHED_MAX - 9);
    assert_string_equal(f.job[0]->id, name_of("bob", FINISHED_KEPT_MS));
    release(&f, shelf);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_ends_many_jobs_has_no_other_owners_forgotten),
        cmocka_unit_test(who_has_most_is_the_same_after_a_restart),
        cmocka_unit_test(of_two_who_have_as_many_the_one_with_another_makes_room),
        cmocka_unit_test(where_each_has_one_the_oldest_goes),
        cmocka_unit_test(those_that_are_too_old_make_room_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
