#include "tests/lib/fixture.h"

#include "common/check.h"
#include "common/str.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static _Noreturn void broken(const struct fixture *f, const char *what)
{
    (void)fprintf(stderr, "%s: %s: make it again with tests/torch/make_fixtures.py\n",
                  f->path, what);
    abort();
}

void fixture_open(struct fixture *f, const char *path)
{
    *f = (struct fixture){.path = path};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        broken(f, "cannot be opened");
    }
    f->size = (size_t)st.st_size;
    f->map = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd); /* the mapping stays */
    uint64_t header;
    if (f->map == MAP_FAILED || f->size < sizeof(header)) {
        broken(f, "cannot be mapped");
    }
    memcpy(&header, f->map,
           sizeof(header)); /* little-endian, as the machines we run on */
    if (header > f->size - sizeof(header)) {
        broken(f, "is cut short");
    }
    const char *text = (const char *)f->map + sizeof(header);
    f->header = json_loadb(text, header, 0, NULL);
    if (f->header == NULL) {
        broken(f, "has a broken header");
    }
    f->data = (const uint8_t *)f->map + sizeof(header) + header;
}

void fixture_close(struct fixture *f)
{
    json_decref(f->header);
    (void)munmap(f->map, f->size);
    *f = (struct fixture){0};
}

bool fixture_has(const struct fixture *f, const char *key)
{
    return json_object_get(json_object_get(f->header, "__metadata__"), key) != NULL;
}

const char *fixture_text(const struct fixture *f, const char *key)
{
    const char *text = json_string_value(
        json_object_get(json_object_get(f->header, "__metadata__"), key));
    if (text == NULL) {
        broken(f, key);
    }
    return text;
}

double fixture_number(const struct fixture *f, const char *key)
{
    double value;
    if (str_parse_double(fixture_text(f, key), &value) != 0) {
        broken(f, key);
    }
    return value;
}

int fixture_int(const struct fixture *f, const char *key)
{
    int64_t value;
    if (str_parse_i64(fixture_text(f, key), &value) != 0) {
        broken(f, key);
    }
    return (int)value;
}

static const void *tensor(const struct fixture *f, const char *name, const char *dtype,
                          size_t size, size_t *ret_n)
{
    json_t *entry = json_object_get(f->header, name);
    if (entry == NULL) {
        return NULL;
    }
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    json_t *offsets = json_object_get(entry, "data_offsets");
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    size_t left = f->size - (size_t)(f->data - (const uint8_t *)f->map);
    if (type == NULL || strcmp(type, dtype) != 0 || end > left || begin > end ||
        begin % size != 0) {
        broken(f, name);
    }
    *ret_n = (end - begin) / size;
    return f->data + begin;
}

const float *fixture_f32(const struct fixture *f, const char *name, size_t *ret_n)
{
    return tensor(f, name, "F32", sizeof(float), ret_n);
}

const double *fixture_f64(const struct fixture *f, const char *name, size_t *ret_n)
{
    return tensor(f, name, "F64", sizeof(double), ret_n);
}

const int32_t *fixture_i32(const struct fixture *f, const char *name, size_t *ret_n)
{
    return tensor(f, name, "I32", sizeof(int32_t), ret_n);
}

double fixture_distance(const float *a, const float *b, size_t n)
{
    double difference = 0.0;
    double norm = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0.0 ? sqrt(difference / norm) : sqrt(difference);
}
