#ifndef COMMON_MEM_H
#define COMMON_MEM_H

/* Allocation for the control plane: aborts when memory is out, with a line that says so
 * (check_out_of_memory), so callers need no error path. Only for sizes with a ceiling;
 * tensors and staging buffers are allocated by device.h and return errors.
 * mem_free(NULL) is fine. */

#include <stddef.h>

void *mem_alloc(size_t size);                     /* uninitialised */
void *mem_zalloc(size_t size);                    /* zeroed */
void *mem_array(size_t n, size_t size);           /* zeroed; aborts on overflow */
void *mem_grow(void *ptr, size_t n, size_t size); /* realloc to n × size */
char *mem_strdup(const char *s);
void *mem_dup(const void *data, size_t size);
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void mem_free(void *ptr);

#endif
