#ifndef WORKER_DEVICE_PEAK_H
#define WORKER_DEVICE_PEAK_H

/* The peak that MFU counts from: what the device's own matrix product reaches at a shape
 * that suits it, on all threads of the rank. Not the data sheet's: what this machine,
 * with these neighbours, gives. Less than 100 ms; the memory it takes is given back. */

#include "worker/device/device.h"

/* Floating-point operations a second; a multiply-add counts as two. */
int peak_measure(struct device *d, double *ret_flop_s, struct errmsg *msg) MUST_CHECK;

#endif
