#include "launcher/place/device_list.h"

#include "common/mem.h"
#include "common/str.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

struct entry {
    const char *text;
    size_t size; /* without the blanks around it */
};

static const char blanks[] = " \t\r\n";

/* The entry of this number; `text` is NULL where there are not so many. */
static struct entry find(const char *list, uint32_t number)
{
    struct entry e = {.text = list};

    for (; number > 0 && e.text; number--) {
        e.text = strchr(e.text, ',');
        e.text += e.text != NULL;
    }
    if (!e.text) {
        return e;
    }
    e.size = strcspn(e.text, ",");
    while (e.size > 0 && strchr(blanks, e.text[e.size - 1])) {
        e.size--;
    }
    for (; e.size > 0 && strchr(blanks, *e.text); e.size--) {
        e.text++;
    }
    return e;
}

static uint32_t count(const char *list)
{
    uint32_t n = 1;

    for (const char *comma = strchr(list, ','); comma; comma = strchr(comma + 1, ',')) {
        n++;
    }
    return n;
}

struct device_list device_list_choose(const char *cuda, const char *hip)
{
    bool is_hip = hip && *hip != '\0';

    return (struct device_list){is_hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES",
                                is_hip ? hip : cuda};
}

int device_list_check(const struct device_list *list, uint32_t nproc,
                      struct errmsg *msg)
{
    uint32_t n;

    if (!list->text) {
        return 0;
    }
    n = count(list->text);
    if (n < nproc) {
        return errmsg_set(msg, ERR_INVALID,
                          "--virtual-local-rank: %s=%.80s is too short for %" PRIu32
                          " workers; name a device for each, or lower "
                          "--nproc-per-node",
                          list->name, list->text, nproc);
    }
    for (uint32_t i = 0; i < nproc && n > 1; i++) {
        if (find(list->text, i).size == 0) {
            return errmsg_set(msg, ERR_INVALID,
                              "--virtual-local-rank: %s=%.80s names no device for "
                              "local rank %" PRIu32 "; fill the gap",
                              list->name, list->text, i);
        }
    }
    return 0;
}

char *device_list_entry(const struct device_list *list, uint32_t local_rank)
{
    struct entry e;

    if (!list->text) {
        return mem_printf("%" PRIu32, local_rank);
    }
    e = find(list->text, local_rank);
    ASSERT(e.text);
    return mem_printf("%.*s", (int)e.size, e.text);
}

static bool is_device(const struct entry *e)
{
    return e->size > 0 &&
           (isdigit((unsigned char)*e->text) || str_starts_with(e->text, "GPU-") ||
            str_starts_with(e->text, "MIG-"));
}

const char *device_list_next(const char **at, size_t *ret_size)
{
    struct entry e = find(*at, 0);

    if (!is_device(&e)) {
        return NULL;
    }
    *at += strcspn(*at, ",");
    *at += **at == ',';
    *ret_size = e.size;
    return e.text;
}
