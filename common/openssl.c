#include "common/openssl.h"

#include "common/check.h"

#include <dlfcn.h>
#include <string.h>

struct openssl openssl;

static const struct {
    const char *name;
    void *where; /* of its pointer in `openssl` */
} functions[] = {
#define OPENSSL_FUNCTION(f) {#f, &(f)},
    OPENSSL_MAP(OPENSSL_FUNCTION)
#undef OPENSSL_FUNCTION
};

int openssl_load(struct errmsg *msg)
{
    static void *library; /* libssl brings libcrypto along; both stay */

    if (library) {
        return 0;
    }
    library = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < ARRAY_LEN(functions) && library; i++) {
        void *function = dlsym(library, functions[i].name);

        if (!function) {
            (void)dlclose(library); /* nothing of it is used */
            library = NULL;
            break;
        }
        memcpy(functions[i].where, &function, sizeof(function));
    }
    if (!library) {
        return errmsg_set(msg, ERR_MISSING,
                          "TLS needs OpenSSL 3 (libssl.so.3, Debian's package "
                          "libssl3): install it, or do without secret and "
                          "certificates");
    }
    /* A thread that was left alone (errand.h) may use it to the last: the end of the
     * program does not take it from under its feet. Fails without memory only. */
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    return 0;
}
