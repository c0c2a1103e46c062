#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

/* Monotonic time. Pure modules never call it: they get `now_ms` with each event. */

#include <stdint.h>

uint64_t clock_ms(void);
uint64_t clock_us(void);
uint64_t clock_boot_ms(void); /* since the machine was started, its sleep included */
uint64_t clock_wall_ms(void); /* Unix time; for people and file names only */

#endif
