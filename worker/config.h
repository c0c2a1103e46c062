#ifndef WORKER_CONFIG_H
#define WORKER_CONFIG_H

/* The worker's configuration: every key of configs/ in one struct, from one table (key,
 * type, default, range, help). Unknown keys, wrong types and ranges are errors with
 * file:line:column and the nearest known name. */

#include "worker/model/unit.h"

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { CONFIG_TEXT_MAX = 512, CONFIG_LIST_MAX = 64 };

struct text_list {
    char item[CONFIG_LIST_MAX][CONFIG_TEXT_MAX];
    int n;
};

/* By steps, by time, or chosen from what is measured; all 0: never. */
struct interval {
    int64_t steps, ms;
    bool is_auto;
};

struct train_config {
    struct {
        char name[CONFIG_TEXT_MAX], dir[CONFIG_TEXT_MAX];
    } run;
    struct {
        char family[16], init_from[CONFIG_TEXT_MAX];
        int64_t layers, heads, kv_heads, dim, context, vocab;
        double dropout;
    } model;
    struct {
        struct text_list train, val;
        char format[16], tokenizer[16], sampler[16];
    } data;
    struct {
        int64_t steps, seq_len, micro_batch, global_batch, seed, leaves_in_place;
        int64_t growth_interval;
        double grad_clip, init_scale, growth_factor, backoff_factor;
        char precision[16], reduction[16], activation_checkpointing[16];
        char grad_scaler[16];
        struct text_list freeze; /* patterns of tensors' names */
    } train;
    struct {
        char name[16], schedule[16];
        double lr, min_lr, beta1, beta2, eps, weight_decay;
        int64_t warmup;
    } optim;
    struct {
        char strategy[16], dp_replicate[16], dp_shard[16], reduce_dtype[16];
        char reshard_after_forward[16];
        int64_t check_every, tp, pp, prefetch, blocks_per_unit, min_unit_params;
        double bucket_cap_mb;
        bool find_unused_parameters, static_graph, offload;
    } parallel;
    struct {
        int64_t every, batches;
    } eval;
    struct {
        int64_t every, tokens, top_k;
        char prompt[CONFIG_TEXT_MAX];
        double temperature;
    } sample;
    struct {
        char dir[CONFIG_TEXT_MAX], resume[CONFIG_TEXT_MAX];
        struct interval every;
        int64_t keep, keep_every, keep_best;
        bool snapshot;
    } checkpoint;
    struct {
        int64_t every;
        char level[16];
        bool curve; /* draw the loss curve at the end */
    } log;
    struct {
        char kind[16];
        int64_t threads; /* 0 = auto */
    } device;
    struct {
        char kind[16];
        double timeout; /* seconds */
    } comm;
};

/* The worker's command line, Hydra-like: its grammar is in worker/README.md. */
struct worker_options {
    struct train_config config;
    bool dry_run, help, version;
    char cfg[8];         /* "", "job" or "all" */
    const char *profile; /* borrowed from argv; NULL: none */
};

/* ERR_INVALID with one clear line: cause, place and remedy. `options` is then
 * unspecified. */
int config_parse(int argc, char *const *argv, struct worker_options *ret,
                 struct errmsg *msg) MUST_CHECK;

/* The resolved configuration as YAML (mem_alloc'ed), and as flat JSON {"a.b": "text",
 * …}. */
char *config_to_yaml(const struct train_config *config);
char *config_to_json(const struct train_config *config);

/* The lines of --help that list every key with meaning, type, range and default
 * (mem_alloc'ed). */
char *config_help(void);

/* train.grad_scaler, or what its `auto` means. */
bool config_scales_loss(const struct train_config *config);

/* Whole-config checks that need no data: divisibility, unsupported values by name. */
int config_check(const struct train_config *config, struct errmsg *msg) MUST_CHECK;

#endif
