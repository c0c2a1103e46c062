#include "worker/data/dataset.h"

#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* llm.c's token file: 256 int32, of which [0] magic, [1] version 1, [2] number of
 * tokens; then uint16 tokens. Everything little-endian.
 *
 * Files stay open up to HELD_FILES of them; of a larger set each read opens its file,
 * for a folder may hold more files than a process may have open. */

enum { HEAD_BYTES = 64 * 1024, LLMC_HEADER = 1024, HELD_FILES = 64 };
enum { LLMC_MAGIC = 20240520, LLMC_MAGIC_LLAMA = 20240801 };

struct data_file {
    char *path; /* owned */
    int fd;     /* -1: opened for each read */
    int64_t bytes;
    int64_t begin; /* byte of the first token */
    int width;     /* bytes of a token: 1 or 2 */
    bool is_guess; /* the name alone decided on the width */
    uint64_t n_tokens;
    uint64_t first_sample;
    uint64_t n_samples;
    uint64_t head_hash;
};

struct dataset {
    struct data_file *file; /* owned */
    size_t n_files;
    int64_t seq_len;
    int64_t vocab;
    uint64_t n_samples;
    uint64_t n_tokens;
};

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

static int32_t get_token(const uint8_t *p, int width)
{
    return width == 1 ? p[0] : p[0] | p[1] << 8;
}

/* Reads all of it; ERR_CORRUPT when the file ends before. */
static int read_at(int fd, void *data, size_t size, int64_t offset)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pread(fd, (char *)data + done, size - done, offset + (off_t)done);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : ERR_CORRUPT;
        }
        done += (size_t)n;
    }
    return 0;
}

/* What to do about tokens that the vocabulary does not have. */
static const char *remedy(const struct data_file *f)
{
    if (f->width == 1) {
        return "; the tokens of text are its bytes: model.vocab=256";
    }
    return f->is_guess ? "; read as u16 because its name ends in .bin: "
                         "data.format=text reads it as bytes"
                       : "";
}

static int blame_token(const struct dataset *d, const struct data_file *f,
                       int32_t token, uint64_t index, struct errmsg *msg)
{
    int64_t at = f->begin + (int64_t)index * f->width;

    return errmsg_set(msg, ERR_CORRUPT,
                      "%s: token %d at byte %lld is not below model.vocab (%lld)%s",
                      f->path, token, (long long)at, (long long)d->vocab, remedy(f));
}

static bool has_ending(const char *path, const char *ending)
{
    size_t len = strlen(path);
    size_t n = strlen(ending);

    return len >= n && strcmp(path + len - n, ending) == 0;
}

static int read_llmc_header(struct data_file *f, const uint8_t *head, size_t size,
                            struct errmsg *msg)
{
    uint32_t magic = size >= 4 ? get_u32(head) : 0;
    int64_t n_tokens;
    int64_t promised; /* bytes */

    if (magic == LLMC_MAGIC_LLAMA) {
        return errmsg_set(
            msg, ERR_UNSUPPORTED,
            "%s: llm.c tokens of Llama 3 (header %d) are not supported yet; "
            "GPT-2's have %d",
            f->path, LLMC_MAGIC_LLAMA, LLMC_MAGIC);
    }
    if (size < LLMC_HEADER || magic != LLMC_MAGIC || get_u32(head + 4) != 1) {
        return errmsg_set(msg, ERR_INVALID,
                          "%s: not an llm.c token file (header %d, version 1)", f->path,
                          LLMC_MAGIC);
    }
    n_tokens = get_u32(head + 8);
    promised = LLMC_HEADER + 2 * n_tokens;
    if (f->bytes != promised) {
        return errmsg_set(
            msg, ERR_CORRUPT,
            "%s: its header promises %lld tokens, that is %lld bytes, but "
            "the file has %lld; it was cut or is still being written",
            f->path, (long long)n_tokens, (long long)promised, (long long)f->bytes);
    }
    f->begin = LLMC_HEADER;
    f->width = 2;
    f->n_tokens = (uint64_t)n_tokens;
    return 0;
}

/* Sets begin, width and n_tokens. */
static int recognise(struct data_file *f, const char *format, const uint8_t *head,
                     size_t size, struct errmsg *msg)
{
    bool is_auto = strcmp(format, "auto") == 0;
    uint32_t magic = size >= 4 ? get_u32(head) : 0;
    bool has_magic = magic == LLMC_MAGIC || magic == LLMC_MAGIC_LLAMA;

    if (strcmp(format, "llmc") == 0 || (is_auto && has_magic)) {
        return read_llmc_header(f, head, size, msg);
    }
    if (strcmp(format, "text") == 0 || (is_auto && !has_ending(f->path, ".bin"))) {
        f->width = 1;
        f->n_tokens = (uint64_t)f->bytes;
        return 0;
    }
    if (!is_auto && strcmp(format, "u16") != 0) {
        return errmsg_set(
            msg, ERR_UNSUPPORTED,
            "data.format: \"%s\" is not supported yet; use auto, text, u16 "
            "or llmc",
            format);
    }
    f->width = 2;
    f->is_guess = is_auto;
    if (f->bytes % 2 != 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "%s: %lld bytes are no whole number of 16-bit tokens%s",
                          f->path, (long long)f->bytes, remedy(f));
    }
    f->n_tokens = (uint64_t)f->bytes / 2;
    return 0;
}

static int check_head(const struct dataset *d, const struct data_file *f,
                      const uint8_t *head, size_t size, struct errmsg *msg)
{
    size_t n = ((size_t)MAX((int64_t)size - f->begin, 0)) / (size_t)f->width;

    for (size_t i = 0; i < n; i++) {
        int32_t token = get_token(head + f->begin + i * (size_t)f->width, f->width);

        if (token >= d->vocab) {
            return blame_token(d, f, token, i, msg);
        }
    }
    return 0;
}

static int examine(const struct dataset *d, struct data_file *f, const char *format,
                   struct errmsg *msg)
{
    struct stat st;
    uint8_t *head;
    size_t size;
    int rv;

    if (fstat(f->fd, &st) < 0) {
        return errmsg_set(msg, -errno, "%s: %s", f->path, err_text(-errno));
    }
    f->bytes = st.st_size;
    size = (size_t)MIN(f->bytes, HEAD_BYTES);
    head = mem_alloc(HEAD_BYTES);
    rv = read_at(f->fd, head, size, 0);
    if (rv < 0) {
        rv = errmsg_set(msg, rv, "%s: %s", f->path, err_text(rv));
    }
    if (rv == 0) {
        f->head_hash = XXH3_64bits(head, size);
        rv = recognise(f, format, head, size, msg);
    }
    if (rv == 0) {
        rv = check_head(d, f, head, size, msg);
    }
    mem_free(head);
    return rv;
}

static int check_name(const struct data_file *f, struct errmsg *msg)
{
    json_t *text = json_string(f->path);

    if (!text) {
        return errmsg_set(msg, ERR_INVALID, "%s: a file name that is not UTF-8",
                          f->path);
    }
    json_decref(text);
    return 0;
}

static int open_file(struct dataset *d, const struct dataset_config *config,
                     struct data_file *f, bool is_named, struct errmsg *msg)
{
    uint64_t wanted = (uint64_t)config->seq_len + 1;
    int rv;

    f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0) {
        return errmsg_set(msg, -errno, "%s: %s", f->path, err_text(-errno));
    }
    rv = check_name(f, msg);
    rv = rv < 0 ? rv : examine(d, f, config->format, msg);
    if (rv < 0) {
        return rv;
    }
    if (f->n_tokens < wanted && is_named) {
        return errmsg_set(
            msg, ERR_INVALID,
            "%s: %llu tokens are too few for one sample of train.seq_len + 1 "
            "= %llu",
            f->path, (unsigned long long)f->n_tokens, (unsigned long long)wanted);
    }
    f->first_sample = d->n_samples;
    f->n_samples = f->n_tokens > 0 ? (f->n_tokens - 1) / (uint64_t)config->seq_len : 0;
    d->n_samples += f->n_samples;
    d->n_tokens += f->n_tokens;
    if (d->n_files > HELD_FILES) {
        (void)close(f->fd); /* only read from */
        f->fd = -1;
    }
    return 0;
}

static int open_files(struct dataset *d, const struct dataset_config *config,
                      const struct file_names *names, struct errmsg *msg)
{
    d->file = mem_array(names->n, sizeof(*d->file));
    d->n_files = names->n;
    for (size_t i = 0; i < names->n; i++) {
        d->file[i].path = mem_strdup(names->file[i].path);
        d->file[i].fd = -1;
    }
    for (size_t i = 0; i < names->n; i++) {
        int rv = open_file(d, config, &d->file[i], names->file[i].is_named, msg);

        if (rv < 0) {
            return errmsg_wrap(msg, rv, "%s", config->what);
        }
    }
    if (d->n_samples == 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "%s: none of its %zu files has the train.seq_len + 1 = %lld "
                          "tokens of one sample",
                          config->what, d->n_files, (long long)config->seq_len + 1);
    }
    return 0;
}

int dataset_open(const struct dataset_config *config, struct dataset **ret,
                 struct errmsg *msg)
{
    struct file_names names;
    struct dataset *d;
    int rv;

    if (config->paths->n == 0) {
        return errmsg_set(
            msg, ERR_INVALID,
            "%s is empty: name files, folders or globs, as in %s=[folder]",
            config->what, config->what);
    }
    rv = files_find(config->paths, config->what, config->own, &names, msg);
    if (rv < 0) {
        return rv;
    }
    d = mem_zalloc(sizeof(*d));
    d->seq_len = config->seq_len;
    d->vocab = config->vocab;
    rv = open_files(d, config, &names, msg);
    files_release(&names);
    if (rv < 0) {
        dataset_close(d);
        return rv;
    }
    *ret = d;
    return 0;
}

void dataset_close(struct dataset *d)
{
    if (!d) {
        return;
    }
    for (size_t i = 0; i < d->n_files; i++) {
        mem_free(d->file[i].path);
        if (d->file[i].fd >= 0) {
            (void)close(d->file[i].fd); /* only read from */
        }
    }
    mem_free(d->file);
    mem_free(d);
}

uint64_t dataset_samples(const struct dataset *d)
{
    return d->n_samples;
}

uint64_t dataset_tokens(const struct dataset *d)
{
    return d->n_tokens;
}

bool dataset_is_text(const struct dataset *d)
{
    for (size_t i = 0; i < d->n_files; i++) {
        if (d->file[i].width != 1) {
            return false;
        }
    }
    return true;
}

/* The last file that begins at or before the sample and is not empty. */
static const struct data_file *find_file(const struct dataset *d, uint64_t sample)
{
    size_t low = 0;
    size_t high = d->n_files;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (d->file[middle].first_sample <= sample) {
            low = middle;
        } else {
            high = middle;
        }
    }
    while (d->file[low].n_samples == 0) {
        ASSERT(low > 0);
        low--; /* files without a sample share the number of the next one */
    }
    return &d->file[low];
}

static int read_sample(const struct dataset *d, const struct data_file *f, int fd,
                       uint64_t index, int32_t *tokens, struct errmsg *msg)
{
    size_t n = (size_t)d->seq_len + 1;
    size_t bytes = n * (size_t)f->width;
    uint64_t first = index * (uint64_t)d->seq_len;
    int64_t offset = f->begin + (int64_t)first * f->width;
    /* the bytes are read into the end of the array and widened from its begin */
    uint8_t *raw = (uint8_t *)tokens + n * sizeof(*tokens) - bytes;
    struct stat st;
    int rv;

    if (fstat(fd, &st) < 0) {
        return errmsg_set(msg, -errno, "%s: %s", f->path, err_text(-errno));
    }
    if (st.st_size != f->bytes) {
        return errmsg_set(
            msg, ERR_CORRUPT,
            "%s: had %lld bytes at the start and has %lld now; data must not "
            "change while it is trained on",
            f->path, (long long)f->bytes, (long long)st.st_size);
    }
    rv = read_at(fd, raw, bytes, offset);
    if (rv < 0) {
        return errmsg_set(msg, rv, "%s: %s at byte %lld", f->path, err_text(rv),
                          (long long)offset);
    }
    for (size_t i = 0; i < n; i++) {
        int32_t token = get_token(raw + i * (size_t)f->width, f->width);

        tokens[i] = token;
        if (token >= d->vocab) {
            return blame_token(d, f, token, first + i, msg);
        }
    }
    return 0;
}

int dataset_read(const struct dataset *d, uint64_t sample, int32_t *tokens,
                 struct errmsg *msg)
{
    const struct data_file *f;
    int fd;
    int rv;

    ASSERT(sample < d->n_samples);
    f = find_file(d, sample);
    fd = f->fd >= 0 ? f->fd : open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errmsg_set(msg, -errno, "%s: %s", f->path, err_text(-errno));
    }
    rv = read_sample(d, f, fd, sample - f->first_sample, tokens, msg);
    if (fd != f->fd) {
        (void)close(fd); /* only read from */
    }
    return rv;
}

char *dataset_identity(const struct dataset *d)
{
    json_t *list = json_array();
    char *dumped;
    char *text;

    ASSERT(list);
    for (size_t i = 0; i < d->n_files; i++) {
        char hash[17];
        json_t *file;
        int rv;

        ASSERT(str_format(hash, sizeof(hash), "%016llx",
                          (unsigned long long)d->file[i].head_hash));
        file = json_pack("{s:s, s:I, s:s}", "path", d->file[i].path, "bytes",
                         (json_int_t)d->file[i].bytes, "head", hash);
        rv = json_array_append_new(list, file);
        ASSERT(rv == 0); /* names are UTF-8: dataset_open saw to it */
    }
    dumped = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    ASSERT(dumped);
    text = mem_strdup(dumped);
    mem_free(dumped);
    return text;
}
