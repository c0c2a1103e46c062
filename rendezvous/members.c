#include "rendezvous/members.h"

#include "rendezvous/admission.h"

#include "common/table.h"
#include "common/wire.h"

#include <string.h>

uint64_t members_key(const struct msg_hello *hello, const char *peer_addr,
                     uint64_t seed)
{
    char name[ADMISSION_NAME_MAX];

    admission_name_node(hello, peer_addr, name, sizeof(name));
    return table_hash(name, strlen(name), seed);
}

static bool has(const struct members *m, uint64_t key)
{
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->key[i] == key) {
            return true;
        }
    }
    return false;
}

void members_add(struct members *m, uint64_t key)
{
    if (m->has_more || has(m, key)) {
        return;
    }
    if (m->n == MEMBERS_MAX) {
        m->has_more = true;
    } else {
        m->key[m->n++] = key;
    }
}

int members_restore(struct members *m, struct bytes keys, bool has_more)
{
    struct wire_reader r;

    if (keys.size > sizeof(m->key) || keys.size % sizeof(m->key[0]) != 0) {
        return ERR_CORRUPT;
    }
    wire_reader_init(&r, keys.data, keys.size);
    m->n = 0;
    m->has_more = has_more;
    while (m->n < keys.size / sizeof(m->key[0])) {
        m->key[m->n++] = wire_get_u64(&r);
    }
    return 0;
}

bool members_may_have(const struct members *m, uint64_t key)
{
    return m->has_more || has(m, key);
}
