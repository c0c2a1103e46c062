/* The vector kernels for AVX-512 (F, DQ, BW, VL). Their source is the same for all
 * instruction sets: names from vec.inc over whatever vectors this file's compiler flags
 * allow. */

#include "worker/device/cpu/vector_attention.inc"

const struct tiles cpu_tiles_avx512 = VECTOR_TILES("avx512");
