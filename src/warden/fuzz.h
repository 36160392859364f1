#ifndef WARDEN_FUZZ_H
#define WARDEN_FUZZ_H

#include <stdint.h>

#define COVERAGE_SIZE 65536u

extern uint8_t *coverage_map;
extern volatile uint8_t *fuzz_reached;
void __sanitizer_cov_trace_pc(void);

#endif
