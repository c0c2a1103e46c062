/* Ranks that agree and ranks that do not, each a process with a folder of its own as
 * working directory, as nodes are. */

#include "tests/lib/cmocka.h"
#include "tests/lib/ranks.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tiny_checkpoint.h"
#include "worker/agreement.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TIMEOUT_MS = 60000, OVERRIDES_MAX = 3 };

struct node {
    const char *override[OVERRIDES_MAX]; /* of the configuration */
    const char *data;                    /* what the training file holds */
    int rv;                              /* what agreement_open says */
    const char *text;                    /* is in its words */
};

struct scene {
    const char *dir;
    struct node node[2];
    int generation; /* of the run, where all agree */
};

#define DATA "0123456789 0123456789 0123456789 0123456789 0123456789"

/* --- a rank --- */

struct rig {
    struct worker_options options;
    struct launch launch;
    struct trainer t;
    int agent; /* the other end of the control channel */
    struct errmsg msg;
};

static void parse(struct rig *r, const struct scene *s, const struct node *n)
{
    char dir[160];
    char *argv[8 + OVERRIDES_MAX] = {
        strdup("ctrun-worker"),          dir,
        strdup("data.train=[data.txt]"), strdup("train.seq_len=8"),
        strdup("train.global_batch=4"),  strdup("train.micro_batch=2")};
    int argc = 6;

    (void)snprintf(dir, sizeof(dir), "run.dir=%s/run", s->dir);
    for (size_t i = 0; i < OVERRIDES_MAX && n->override[i]; i++) {
        argv[argc++] = strdup(n->override[i]);
    }
    RANK_CHECK(config_parse(argc, argv, &r->options, &r->msg) == 0);
    for (int i = 0; i < argc; i++) {
        free(argv[i] == dir ? NULL : argv[i]);
    }
}

static void enter_folder(const struct rank *self, const struct scene *s,
                         const struct node *n)
{
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/node%d", s->dir, self->rank);
    RANK_CHECK(mkdir(path, 0777) == 0 && chdir(path) == 0);
    file = fopen("data.txt", "we");
    RANK_CHECK(file && fputs(n->data ? n->data : DATA, file) >= 0 && fclose(file) == 0);
}

/* The agent has said START already. */
static int open_channel(struct rig *r)
{
    static const struct control start = {.type = CONTROL_START, .cluster = 7};
    struct buf packet;
    int fds[2];

    RANK_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    r->agent = fds[0];
    buf_init(&packet, CONTROL_MAX);
    RANK_CHECK(control_encode(&start, &packet) == 0);
    RANK_CHECK(send(r->agent, buf_bytes(&packet), buf_len(&packet), 0) > 0);
    buf_release(&packet);
    return fds[1];
}

static void rig_open(struct rig *r, const struct rank *self)
{
    const struct scene *s = self->arg;
    const struct node *n = &s->node[self->rank];
    struct dataset_config data = {.format = "text", .what = "data.train", .seq_len = 8};

    *r = (struct rig){.launch = {.rank = self->rank,
                                 .world_size = self->world_size,
                                 .local_world_size = 1,
                                 .cpu_ranks = 1,
                                 .node = self->rank,
                                 .master_addr = "127.0.0.1",
                                 .master_port = self->store_port,
                                 .run_id = "job",
                                 .generation = 3}};
    enter_folder(self, s, n);
    parse(r, s, n);
    r->t = (struct trainer){.config = &r->options.config,
                            .launch = &r->launch,
                            .timeout_ms = TIMEOUT_MS,
                            .n_leaves = 2};
    data.paths = &r->options.config.data.train;
    data.vocab = r->options.config.model.vocab;
    RANK_CHECK(dataset_open(&data, &r->t.train_data, &r->msg) == 0);
    RANK_CHECK(control_client_open(open_channel(r), &r->t.control, &r->msg) == 0);
}

static void rig_close(struct rig *r)
{
    trainer_close(&r->t);
    control_client_close(r->t.control);
    RANK_CHECK(close(r->agent) == 0);
}

static void check_agreed(struct rig *r, const struct scene *s)
{
    uint8_t packet[CONTROL_MAX];
    char log[160];
    struct control hello;
    ssize_t n = recv(r->agent, packet, sizeof(packet), MSG_DONTWAIT);

    (void)snprintf(log, sizeof(log), "%s/run/log/%d", s->dir, s->generation);
    RANK_CHECK(r->t.run_dir.run_generation == s->generation);
    RANK_CHECK(n > 0 && control_decode(packet, (size_t)n, &hello) == 0);
    RANK_CHECK(hello.type == CONTROL_HELLO && hello.max_world == 2);
    RANK_CHECK(strcmp(hello.path, log) == 0);
    RANK_CHECK(strstr(r->t.meta.model_json, "\"family\": \"gpt2\""));
    RANK_CHECK(strstr(r->t.meta.data_json, "data.txt"));
    RANK_CHECK(strstr(r->t.meta.signature, " mb2"));
}

static int agree(const struct rank *self)
{
    const struct scene *s = self->arg;
    const struct node *n = &s->node[self->rank];
    struct rig r;
    int rv;

    rig_open(&r, self);
    rv = agreement_open(&r.t, &r.msg);
    if (rv != n->rv || (n->text && !strstr(r.msg.text, n->text))) {
        (void)fprintf(stderr, "%s: %s\n", err_name(rv), r.msg.text);
        RANK_CHECK(!"as the scene says");
    }
    if (rv == 0) {
        check_agreed(&r, s);
    }
    rig_close(&r);
    return 0;
}

static void run_bodies(int n, rank_body body, struct scene *s)
{
    int status[RANKS_MAX];
    struct scratch scratch;

    scratch_open(&scratch);
    s->dir = scratch.dir;
    assert_true(ranks_run(n, body, s, status));
    for (int rank = 0; rank < n; rank++) {
        assert_int_equal(status[rank], 0);
    }
    scratch_close(&scratch);
}

/* --- agreement --- */

static void ranks_that_agree_have_one_run_generation_and_say_hello(void **state)
{
    struct scene s = {.generation = 3};

    (void)state;
    run_bodies(1, agree, &s);
    run_bodies(2, agree, &s);
}

static void keys_about_the_machine_may_differ(void **state)
{
    struct scene s = {.node[1].override = {"log.every=7", "device.threads=1"},
                      .generation = 3};

    (void)state;
    run_bodies(2, agree, &s);
}

static void the_run_generation_is_above_that_of_every_checkpoint(void **state)
{
    struct scene s = {.generation = 10};
    struct scratch scratch;
    struct tiny tiny;
    int status[RANKS_MAX];

    (void)state;
    scratch_open(&scratch);
    s.dir = scratch.dir;
    assert_int_equal(mkdir(scratch_path(&scratch, "run"), 0777), 0);
    tiny_init(&tiny, 0);
    tiny_commit(&tiny, scratch_path(&scratch, "run/ckpt"), 70, 2, 1);
    tiny_commit(&tiny, scratch_path(&scratch, "run/ckpt"), 50, 9, 1);
    tiny_release(&tiny);
    assert_true(ranks_run(2, agree, &s, status));
    assert_true(status[0] == 0 && status[1] == 0);
    scratch_close(&scratch);
}

/* --- disagreement --- */

static void another_configuration_is_refused_by_the_names_of_its_keys(void **state)
{
    struct scene s = {
        .generation = 3,
        .node[1] = {.override = {"train.seed=7", "optim.lr=0.5", "run.name=x"},
                    .rv = ERR_INVALID,
                    .text = "rank 1 has another configuration than rank 0: train.seed, "
                            "optim.lr; give every node the same"}};

    (void)state;
    run_bodies(2, agree, &s);
}

static void other_data_under_the_same_name_is_refused(void **state)
{
    struct scene s = {.generation = 3,
                      .node[1] = {.data = DATA "!",
                                  .rv = ERR_INVALID,
                                  .text = "rank 1 finds other files at data.train"}};

    (void)state;
    run_bodies(2, agree, &s);
}

static void a_run_directory_that_is_not_shared_is_refused(void **state)
{
    struct scene s = {
        .generation = 3,
        .node[1] = {.override = {"run.dir=elsewhere"},
                    .rv = ERR_MISSING,
                    .text = "does not see rank 0's run directory at elsewhere"}};

    (void)state;
    run_bodies(2, agree, &s);
}

/* --- another program on the other rank --- */

/* What rank 0 of another build publishes; nobody waits for the rest. */
static void publish(const struct rank *self, const char *const (*records)[2], size_t n)
{
    struct store_client *store;
    struct errmsg msg;

    RANK_CHECK(store_client_open("127.0.0.1", self->store_port, TIMEOUT_MS, &store,
                                 &msg) == 0);
    for (size_t i = 0; i < n; i++) {
        RANK_CHECK(store_client_set(store, records[i][0], records[i][1],
                                    strlen(records[i][1]), &msg) == 0);
    }
    store_client_close(store);
}

static int meet_another_version(const struct rank *self)
{
    static const char *const records[][2] = {
        {"isa", "scalar"}, {"signature", "cpu scalar of another version"}};

    if (self->rank == 0) {
        publish(self, records, ARRAY_LEN(records));
        return 0;
    }
    return agree(self);
}

static void another_version_is_refused_with_both_signatures(void **state)
{
    struct scene s = {.node[1] = {.rv = ERR_INVALID,
                                  .text = "rank 0 with \"cpu scalar of another "
                                          "version\": start every node with the same"}};

    (void)state;
    run_bodies(2, meet_another_version, &s);
}

static int meet_an_unknown_leader(const struct rank *self)
{
    static const char *const records[][2] = {{"isa", "quantum"}};

    if (self->rank == 0) {
        publish(self, records, ARRAY_LEN(records));
        return 0;
    }
    return agree(self);
}

static int meet_an_unknown_follower(const struct rank *self)
{
    static const char *const records[][2] = {{"isa/1", "quantum"}};

    if (self->rank == 1) {
        publish(self, records, ARRAY_LEN(records));
        return 0;
    }
    return agree(self);
}

static void an_unknown_instruction_set_is_refused(void **state)
{
    struct scene led = {
        .node[1] = {.rv = ERR_INVALID, .text = "rank 0 computes with \"quantum\""}};
    struct scene leading = {
        .node[0] = {.rv = ERR_INVALID,
                    .text = "rank 1 has an unknown processor \"quantum\""}};

    (void)state;
    run_bodies(2, meet_an_unknown_leader, &led);
    run_bodies(2, meet_an_unknown_follower, &leading);
}

/* Rank `lowest` has a lesser processor. */
static int have_a_lesser_processor(const struct rank *self, int lowest)
{
    const struct scene *s = self->arg;
    struct rig r;

    if (self->rank == lowest) { /* NOLINTNEXTLINE(concurrency-mt-unsafe): alone yet */
        RANK_CHECK(setenv("CTRUN_ISA", "scalar", 1) == 0);
    }
    rig_open(&r, self);
    RANK_CHECK(agreement_open(&r.t, &r.msg) == 0);
    RANK_CHECK(strstr(r.t.device->signature, "scalar"));
    check_agreed(&r, s);
    rig_close(&r);
    return 0;
}

static int follower_is_lesser(const struct rank *self)
{
    return have_a_lesser_processor(self, 1);
}

static int leader_is_lesser(const struct rank *self)
{
    return have_a_lesser_processor(self, 0);
}

static void all_compute_as_the_least_processor_does(void **state)
{
    struct scene s = {.generation = 3};

    (void)state;
    run_bodies(2, follower_is_lesser, &s);
    run_bodies(2, leader_is_lesser, &s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_agree_have_one_run_generation_and_say_hello),
        cmocka_unit_test(keys_about_the_machine_may_differ),
        cmocka_unit_test(the_run_generation_is_above_that_of_every_checkpoint),
        cmocka_unit_test(another_configuration_is_refused_by_the_names_of_its_keys),
        cmocka_unit_test(other_data_under_the_same_name_is_refused),
        cmocka_unit_test(a_run_directory_that_is_not_shared_is_refused),
        cmocka_unit_test(another_version_is_refused_with_both_signatures),
        cmocka_unit_test(an_unknown_instruction_set_is_refused),
        cmocka_unit_test(all_compute_as_the_least_processor_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
